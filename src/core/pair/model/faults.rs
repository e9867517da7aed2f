//! What fails, as often as the run allows, and what heals.

use super::{
    moves::{Move, Next},
    world::{GHOST, Me, Mysqld, Run, World},
};

/// All that can fail next, and all that can heal.
pub fn next(w: &World, out: &mut Vec<Next>) {
    for op in 0..usize::from(w.left.operators) {
        let mut heal = |m: Move, f: &dyn Fn(&mut World)| {
            let mut n = *w;
            f(&mut n);
            out.push((m, n, None));
        };
        if w.ops[op].cut_api {
            heal(Move::HealToApi { op }, &|n| n.ops[op].cut_api = false);
        }
        for server in 0..GHOST {
            if w.ops[op].cut[server] {
                heal(Move::HealToServer { op, server }, &|n| {
                    n.ops[op].cut[server] = false;
                });
            }
        }
    }
    if w.cut {
        let mut n = *w;
        n.cut = false;
        out.push((Move::HealServers, n, None));
    }
    if w.clone_wanted && w.left.aborts > 0 {
        let mut n = *w;
        n.left.aborts -= 1;
        n.clone_wanted = false;
        out.push((Move::CloneGivenUp, n, None));
    }
    if w.left.faults == 0 {
        return;
    }
    let l = w.left;
    let mut fault = |m: Move, left: u8, f: &dyn Fn(&mut World)| {
        if left == 0 {
            return;
        }
        let mut n = *w;
        n.left.faults -= 1;
        f(&mut n);
        if n.servers != w.servers || n.ops != w.ops || n.cut != w.cut || n.wish != w.wish {
            out.push((m, n, None));
        }
    };
    for i in 0..GHOST {
        let s = &w.servers[i];
        if s.run != Run::Down && !s.node_gone {
            fault(Move::Crash(i), l.crashes, &|n| {
                n.left.crashes -= 1;
                n.stop(i);
            });
        }
        if s.up() {
            fault(Move::Pause(i), l.pauses, &|n| {
                n.left.pauses -= 1;
                n.servers[i].run = Run::Paused;
            });
            fault(Move::Purged(i), l.purges, &|n| {
                n.left.purges -= 1;
                n.servers[i].purged = s.executed;
            });
        }
        if s.me.is_multiple_of(2) {
            fault(Move::DiskLost(i), l.disk_losses, &|n| {
                n.left.disk_losses -= 1;
                n.stop(i);
                n.servers[i] = Mysqld::empty(s.me + 1 as Me);
            });
            if !s.node_gone {
                fault(Move::NodeGone(i), l.node_losses, &|n| {
                    n.left.node_losses -= 1;
                    n.servers[i].node_gone = true;
                });
            }
        }
        if !s.leaving && s.run != Run::Down {
            fault(Move::DeletePod(i), l.pod_deletions, &|n| {
                n.left.pod_deletions -= 1;
                n.servers[i].leaving = true;
            });
        }
    }
    for op in 0..usize::from(l.operators) {
        if !w.ops[op].cut_api {
            fault(Move::CutFromApi { op }, l.cuts, &|n| {
                n.left.cuts -= 1;
                n.ops[op].cut_api = true;
            });
        }
        for server in 0..GHOST {
            if !w.ops[op].cut[server] {
                fault(Move::CutFromServer { op, server }, l.cuts, &|n| {
                    n.left.cuts -= 1;
                    n.ops[op].cut[server] = true;
                });
            }
        }
    }
    if !w.cut {
        fault(Move::CutServers, l.cuts, &|n| {
            n.left.cuts -= 1;
            n.cut = true;
        });
    }
    if let Some(r) = w.record
        && w.wish.is_none()
    {
        fault(Move::Wish(1 - r.active), l.wishes, &|n| {
            n.left.wishes -= 1;
            n.wish = Some(1 - r.active);
        });
    }
}
