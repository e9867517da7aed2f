//! The condition `Durable`: whether a commit is on two servers before it is acknowledged.

use super::{observed::Observed, reasons};
use crate::api::conditions::{DURABLE, Said};

/// What is said of it.
pub fn durable(o: &Observed) -> Said {
    let Some(record) = &o.record else {
        return Said {
            type_: DURABLE,
            status: None,
            reason: reasons::WAITING_FOR_SERVERS,
            message: "nothing is recorded yet".into(),
        };
    };
    let active = o.pod_name(record.active);
    if record.members() < 2 {
        return Said::no(
            DURABLE,
            reasons::ALONE,
            format!("only {active} is in sync: what it acknowledges is on its volume alone"),
        );
    }
    let server = o.side(record.active).up();
    if server.is_some_and(|s| s.writable() && s.source.enabled && !s.source.waits) {
        return Said::no(
            DURABLE,
            reasons::NOT_WAITING,
            format!(
                "{active} waited for an acknowledgement for longer than `acknowledgementTimeoutSeconds` and goes on alone: what it acknowledges may be lost with it"
            ),
        );
    }
    if let Some(s) = server.filter(|s| s.source.enabled && !s.foreign.is_empty()) {
        return Said::no(
            DURABLE,
            reasons::FOREIGN_ACKNOWLEDGER,
            format!(
                "a server that is none of the pair acknowledges commits of {active} (account {}): the other one may lack them. On that server set `rpl_semi_sync_replica_enabled = OFF` and start its replication anew",
                s.foreign.join(", ")
            ),
        );
    }
    Said::yes(
        DURABLE,
        reasons::ACKNOWLEDGED_BY_BOTH,
        "a commit is acknowledged when both servers have it",
    )
}
