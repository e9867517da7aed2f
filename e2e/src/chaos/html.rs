//! The page of a report: one file, no scripts, nothing from elsewhere. The timeline is an SVG with a lane for each thing that was watched.

use super::report::{Report, Round};
use crate::watched;
use std::fmt::Write as _;

const PIXELS_A_SECOND: f64 = 10.0;
const LEFT: f64 = 150.0;
/// A gap is drawn from here on, in seconds.
const GAP: f64 = 0.1;
const LANE: f64 = 24.0;
const CHART: f64 = 60.0;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:24px;color:#1b1f24;background:#fff}\
h1{font-size:22px}h2{font-size:16px;margin-top:28px}.scroll{overflow-x:auto;border:1px solid #d0d7de;border-radius:6px}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{border-bottom:1px solid #d0d7de;padding:4px 10px;text-align:left;\
vertical-align:top}td.n{text-align:right}.bad{color:#b42318;font-weight:600}.good{color:#1a7f37;font-weight:600}small{color:#57606a}\
text{font:11px system-ui,sans-serif;fill:#1b1f24}.name{font-weight:600}code{background:#f6f8fa;padding:2px 5px}";

/// The page.
pub fn page(r: &Report) -> String {
    let verdict = if r.passed() {
        "<span class=good>passed</span>".to_owned()
    } else {
        format!(
            "<span class=bad>failed</span><ul>{}</ul>",
            list(&r.failures, "bad")
        )
    };
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Chaos, seed {seed}</title><style>{STYLE}</style>\
         <h1>Chaos, seed {seed}: {verdict}</h1>\
         <p>{rounds} rounds in {seconds:.0} s from {began}. {acknowledged} rows were acknowledged{held}; of {unknown} outcomes that no \
         client knows {there} are there. </p><p>{samples} samples of who can \
         acknowledge; at least {floor:.0} for each minute and server that was up are asked for.</p><ul>{watched}</ul><p>Again: <code>{replay}</code></p>\
         <h2>Timeline</h2><p><small>Point at anything to read what it is. A gap is from the last acknowledged write to the next.</small></p>\
         <div class=scroll>{timeline}</div><h2>Faults and what they cost</h2>{table}<h2>The record</h2>{record}</html>\n",
        seed = r.seed,
        rounds = r.rounds.len(),
        seconds = r.seconds,
        began = r.began,
        acknowledged = r.clients.iter().map(|c| c.acknowledged).sum::<usize>(),
        held = if r.passed() {
            " and are on both servers, each once"
        } else {
            ""
        },
        unknown = r.held.unknown,
        there = r.held.unknown_there,
        samples = r.samples,
        floor = watched::FLOOR,
        watched = list(
            &r.watched.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "n"
        ),
        replay = escape(&r.replay),
        timeline = timeline(r),
        table = table(&r.rounds),
        record = record(r),
    )
}

fn list(items: &[String], class: &str) -> String {
    let mut out = String::new();
    for item in items {
        let _ = write!(out, "<li class={class}>{}</li>", escape(item));
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn x(seconds: f64) -> f64 {
    LEFT + seconds.max(0.0) * PIXELS_A_SECOND
}

/// Lanes are added from top to bottom.
struct Canvas {
    svg: String,
    y: f64,
    seconds: f64,
}

impl Canvas {
    fn lane(&mut self, name: &str, height: f64) {
        let _ = write!(
            self.svg,
            "<line x1=0 x2={} y1={y} y2={y} stroke=#eaeef2 /><text class=name x=8 y={}>{}</text>",
            x(self.seconds),
            self.y + 16.0,
            escape(name),
            y = self.y
        );
        self.y += height;
    }

    /// A bar in the lane that was added last.
    fn bar(&mut self, from: f64, to: f64, colour: &str, label: &str, title: &str) {
        let width = ((to - from) * PIXELS_A_SECOND).max(2.0);
        let _ = write!(
            self.svg,
            "<g><title>{}</title><rect x={:.1} y={:.1} width={width:.1} height={} rx=3 fill={colour} /><text x={:.1} y={:.1}>{}</text></g>",
            escape(title),
            x(from),
            self.y - LANE + 3.0,
            LANE - 6.0,
            x(from) + 4.0,
            self.y - 8.0,
            escape(label)
        );
    }
}

fn timeline(r: &Report) -> String {
    let mut c = Canvas {
        svg: String::new(),
        y: 20.0,
        seconds: r.seconds,
    };
    faults(&mut c, r);
    roles(&mut c, r);
    for route in ["map", "Service"] {
        gaps(&mut c, r, route);
        rate(&mut c, r, route);
    }
    let mut ticks = String::new();
    let mut at = 0.0;
    while at <= r.seconds {
        let _ = write!(
            ticks,
            "<line x1={0:.1} x2={0:.1} y1=14 y2={1} stroke=#eaeef2 /><text x={0:.1} y=12>{at:.0} s</text>",
            x(at),
            c.y
        );
        at += 10.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width={:.0} height={:.0}>{ticks}{}</svg>",
        x(r.seconds) + 20.0,
        c.y + 10.0,
        c.svg
    )
}

fn faults(c: &mut Canvas, r: &Report) {
    c.lane("faults", LANE);
    for round in &r.rounds {
        let title = format!("{}\n{}", round.blow, round.did.join("\n"));
        c.bar(
            round.struck,
            round.healed,
            "#f0883e",
            &format!("#{} {}", round.number, round.blow),
            &title,
        );
    }
    c.lane("until healthy", LANE);
    for round in &r.rounds {
        let (end, colour) = round.healthy.map_or((r.seconds, "#cf222e"), |h| (h, "#bf8700"));
        c.bar(
            round.healed,
            end,
            colour,
            &format!("{:.1} s", end - round.healed),
            "from healed to healthy",
        );
    }
}

/// Who was active by the record, and who could acknowledge by the servers' own words.
fn roles(c: &mut Canvas, r: &Report) {
    c.lane("active by the record", LANE);
    for (n, change) in r.record.iter().enumerate() {
        let seconds = |t: k8s_openapi::jiff::Timestamp| t.duration_since(r.began).as_secs_f64();
        let to = r.record.get(n + 1).map_or(r.seconds, |next| seconds(next.at));
        let colour = if change.said.active.ends_with("-0") {
            "#80ccff"
        } else {
            "#d2a8ff"
        };
        let said = &change.said;
        let title = format!(
            "{} epoch {}, in sync {:?}, Ready {}",
            said.active, said.epoch, said.in_sync, said.ready
        );
        c.bar(
            seconds(change.at),
            to,
            colour,
            &format!("{} e{}", said.active, said.epoch),
            &title,
        );
    }
    let mut pods: Vec<_> = r.servers.iter().map(|s| s.pod.clone()).collect();
    pods.sort();
    pods.dedup();
    for pod in pods {
        c.lane(&format!("{pod} says"), LANE);
        let own: Vec<_> = r.servers.iter().filter(|s| s.pod == pod).collect();
        for (n, s) in own.iter().enumerate() {
            let to = own.get(n + 1).map_or(r.seconds, |next| next.at);
            let colour = match (s.acknowledges, s.open) {
                (true, _) => "#4ac26b",
                (false, true) => "#ffd33d",
                _ => "#d0d7de",
            };
            c.bar(s.at, to, colour, "", &s.words);
        }
    }
}

fn gaps(c: &mut Canvas, r: &Report, route: &str) {
    c.lane(&format!("gaps by {route}"), LANE);
    for gap in r
        .rounds
        .iter()
        .flat_map(|x| &x.gaps)
        .filter(|g| g.route == route && g.seconds >= GAP)
    {
        let title = format!(
            "{:.3} s; {} unknown, {} refused, {} without a connection{}",
            gap.seconds,
            gap.unknown,
            gap.refused,
            gap.not_sent,
            gap.told
                .map(|t| format!("; the map told after {t:.3} s"))
                .unwrap_or_default()
        );
        c.bar(
            gap.from,
            gap.from + gap.seconds,
            "#ff8182",
            &format!("{:.2}", gap.seconds),
            &title,
        );
    }
}

/// Acknowledged writes a second, of all clients of a route.
fn rate(c: &mut Canvas, r: &Report, route: &str) {
    let mut all: Vec<u32> = vec![];
    for client in r.clients.iter().filter(|c| c.route == route) {
        all.resize(all.len().max(client.per_second.len()), 0);
        for (sum, n) in all.iter_mut().zip(&client.per_second) {
            *sum += n;
        }
    }
    let most = all.iter().copied().max().unwrap_or(0).max(1);
    c.lane(&format!("acknowledged/s, {most} at most"), CHART);
    for (second, n) in all.iter().enumerate() {
        let height = f64::from(*n) / f64::from(most) * (CHART - 8.0);
        #[allow(clippy::cast_precision_loss, reason = "seconds of a run are few")]
        let left = x(second as f64);
        let _ = write!(
            c.svg,
            "<rect x={left:.1} y={:.1} width={:.1} height={height:.1} fill=#54aeff><title>{second} s: {n}</title></rect>",
            c.y - height,
            PIXELS_A_SECOND - 1.0
        );
    }
}

fn table(rounds: &[Round]) -> String {
    let mut out = String::from(
        "<table><tr><th>#<th>at<th>faults<th>what was done<th>gap by map<th>by Service<th>healing: by map<th>by Service<th>unknown<th>healthy after<th>load<th>active, epoch</tr>",
    );
    for r in rounds {
        let gap = |route, healing| {
            r.gap(route, healing)
                .map_or_else(|| "–".to_owned(), |g| format!("{g:.3} s"))
        };
        let healthy = r.healthy.map_or_else(
            || "<span class=bad>never</span>".to_owned(),
            |h| format!("{:.1} s", h - r.healed),
        );
        let _ = write!(
            out,
            "<tr><td>{}<td class=n>{:.1} s<td>{}<td><small>{}</small><td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{healthy}<td class=n>{:.1}–{:.1}<td>{} {} → {} {}</tr>",
            r.number,
            r.struck,
            escape(&r.blow),
            r.did.iter().map(|d| escape(d)).collect::<Vec<_>>().join("<br>"),
            gap("map", false),
            gap("Service", false),
            gap("map", true),
            gap("Service", true),
            r.gaps.iter().map(|g| g.unknown).sum::<usize>(),
            r.load.0,
            r.load.1,
            escape(&r.before.active),
            r.before.epoch,
            escape(&r.after.active),
            r.after.epoch
        );
    }
    out + "</table>"
}

fn record(r: &Report) -> String {
    let mut out = String::from("<table><tr><th>at<th>active<th>epoch<th>in sync<th>Ready</tr>");
    for c in &r.record {
        let _ = write!(
            out,
            "<tr><td class=n>{:.1} s<td>{}<td class=n>{}<td>{}<td>{}</tr>",
            c.at.duration_since(r.began).as_secs_f64().max(0.0),
            escape(&c.said.active),
            c.said.epoch,
            escape(&c.said.in_sync.join(", ")),
            escape(&c.said.ready)
        );
    }
    out + "</table>"
}

#[cfg(test)]
mod tests {
    use super::page;
    use crate::chaos::report::tests::sample;

    #[test]
    fn the_page_stands_alone_and_escapes() {
        let page = page(&sample());
        assert!(
            page.contains("1200 samples") && page.contains("<svg") && page.contains("lost &lt;1&gt; row")
        );
        // But for the name of SVG's own namespace, no address.
        assert_eq!(page.matches("http").count(), 1);
        assert!(!page.contains("<script"));
    }
}
