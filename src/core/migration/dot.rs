//! The drawing of the states, made from the same table as the page: `docs/fsm/split.dot`.

use super::table::{ROWS, Row};
use std::fmt::Write as _;

/// Where a transition of the record leads, by the stage that it is made in.
fn leads_to(transition: &str, stage: &'static str) -> &'static str {
    match transition {
        "Follow" | "Resume" => "Following",
        "Retain" => "Retaining",
        "CleanUp" => "CleaningUp",
        "EndMove" => "End",
        _ => stage,
    }
}

/// The stages as Graphviz draws them: in each, its rows in the order in which they are asked for; between them, the transitions of the record.
pub fn dot() -> String {
    let stages = ["Seeding", "Following", "Retaining", "CleaningUp"];
    let mut out = String::from(
        "// Generated from src/core/migration/table.rs; docs/split.md has the table.\ndigraph split {\n  rankdir=LR; compound=true; node [shape=box, fontsize=10]; edge [fontsize=9];\n  Begin [shape=circle, label=\"\"]; End [shape=doublecircle, label=\"\"];\n",
    );
    for stage in stages {
        let _ = writeln!(out, "  subgraph cluster_{stage} {{\n    label=\"{stage}\";");
        let mut before: Option<&str> = None;
        for r in ROWS.iter().filter(|r| asked(r, stage)) {
            let _ = writeln!(out, "    {stage}_{} [label=\"{}\"];", r.name, r.name);
            if let Some(before) = before {
                let _ = writeln!(
                    out,
                    "    {stage}_{before} -> {stage}_{} [style=dotted, arrowhead=none];",
                    r.name
                );
            }
            before = Some(r.name);
        }
        out.push_str("  }\n");
    }
    let first = |stage: &'static str| {
        let r = ROWS.iter().find(|r| asked(r, stage));
        format!("{stage}_{}", r.map_or("", |r| r.name))
    };
    let _ = writeln!(
        out,
        "  Begin -> {} [lhead=cluster_Seeding, label=\"BeginMove\"];",
        first("Seeding")
    );
    for stage in stages {
        for r in ROWS.iter().filter(|r| asked(r, stage)) {
            for transition in r.records {
                let goal = leads_to(transition, stage);
                let (node, head) = match (goal, *transition) {
                    ("End", _) => ("End".to_owned(), String::new()),
                    // A batch on record: its pass goes on, or another one undoes it.
                    (_, "BeginBatch") => (
                        format!("{stage}_BatchLeft"),
                        ", style=dashed, tooltip=\"its pass ends\"".into(),
                    ),
                    _ => (first(goal), format!(", lhead=cluster_{goal}")),
                };
                let bold = if *transition == "CutOver" {
                    ", penwidth=3"
                } else {
                    ""
                };
                let _ = writeln!(
                    out,
                    "  {stage}_{} -> {node} [label=\"{transition}\"{head}{bold}];",
                    r.name
                );
            }
        }
    }
    out.push_str("}\n");
    out
}

/// Whether a row may hold in a stage. Batches are on record in Following alone: no other stage begins one, or is entered with one.
fn asked(r: &Row, stage: &str) -> bool {
    match r.name {
        "Gone" => false,
        "BatchLeft" => stage == "Following",
        _ => r.stages.is_empty() || r.stages.contains(&stage),
    }
}
