//! The links on record close no circle.

use super::*;

fn begin(p: &Placement, from: &str, to: &str, s: &SpanSet) -> Result<Placement, Error> {
    begin_move(p, from, to, s, Seed::PerDatabase)
}
fn closes(from: &str, to: &str, path: &[(&str, &str)]) -> Result<Placement, Error> {
    Err(Error::ClosesCircle {
        key: key(from, to),
        path: path.iter().map(|(a, b)| key(a, b)).collect(),
    })
}

#[test]
fn no_move_closes_a_circle_while_any_on_it_is_on_record() {
    let (p, k) = following();
    let p = begin(&p, "p1", "p2", &span(100, 149)).unwrap();
    let way = [("p0", "p1"), ("p1", "p2")];
    let refused = |p: &Placement| {
        assert_eq!(begin(p, "p0", "p2", &span(0, 9)), closes("p0", "p2", &way));
        let back = [way[1], way[0]];
        assert_eq!(begin(p, "p2", "p0", &span(0, 9)), closes("p2", "p0", &back));
    };
    refused(&p);
    // A longer one is no better.
    let longer = begin(&p, "p0", "p3", &span(0, 9)).unwrap();
    let way_round = [("p0", "p3"), way[0], way[1]];
    assert_eq!(
        begin(&longer, "p3", "p2", &span(10, 19)),
        closes("p3", "p2", &way_round)
    );
    // Neither the time of grace nor the clean-up has taken the channels away.
    let p = cut_over(&begin_batch(&p, &k, &span(50, 99)).unwrap(), &k, 1).unwrap();
    let p = retain(&p, &k, until()).unwrap();
    refused(&p);
    let p = clean_up(&p, &k).unwrap();
    refused(&p);
    let p = end_move(&p, &k).unwrap();
    let p = begin(&p, "p0", "p2", &span(0, 9)).unwrap();
    assert_eq!(p.moves.len(), 2);
    let e = begin(&p, "p1", "p0", &span(10, 19)).unwrap_err();
    assert!(!e.is_malformed(), "{e}");
    assert!(e.to_string().contains("p1 → p2 and p0 → p2"), "{e}");
}

#[test]
fn a_record_whose_links_close_a_circle_is_not_worked_on() {
    let (p, k) = following();
    let p = begin(&p, "p0", "p2", &span(0, 9)).unwrap();
    let mut closed = begin(&p, "p1", "p3", &span(100, 149)).unwrap();
    placement::check(&closed).unwrap();
    closed.moves[2].to = "p2".into();
    let e = clean_up(&closed, &k).unwrap_err();
    assert!(
        matches!(&e, Error::MalformedMove { key: at, .. } if *at == key("p1", "p2")),
        "{e}"
    );
    assert!(e.is_malformed());
}
