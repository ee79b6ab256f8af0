//! Notices that this server is connected to others, and none of them is connected to it.
//!
//! Each server dials each other one at the address in its list. So the address of this server in the lists of the others
//! is wrong, or it is blocked. Without this line only their logs show it.

use corral_core::forwarding::Forwarding;
use corral_core::ids::Millis;

/// How long it lasts before it is logged, in milliseconds. A server that starts is dialled within about a second.
const LASTS_MS: u64 = 10_000;
/// Time between two lines, in milliseconds.
const AGAIN_MS: u64 = 60_000;

/// Since when no other server dials this one, while this one is connected to others.
#[derive(Debug, Default)]
pub(crate) struct OneWay {
    since: Option<Millis>,
    logged: Option<Millis>,
}

impl OneWay {
    /// Logs a line if it is due. `is_dialled` is whether a connection stands that another server dialled.
    pub(crate) fn tick(&mut self, now: Millis, forwarding: &Forwarding, is_dialled: bool) {
        if self.is_due(now, forwarding.connected().next().is_some(), is_dialled) {
            let servers: Vec<String> = forwarding.connected().map(|server| server.to_string()).collect();
            tracing::warn!(
                servers = servers.join(", "),
                "this server is connected to others, and no server is connected to it: its address in their lists of servers is wrong, \
                 or a firewall blocks it; their logs have the address that they dial"
            );
        }
    }

    /// `dials` is whether a connection stands that this server dialled.
    fn is_due(&mut self, now: Millis, dials: bool, is_dialled: bool) -> bool {
        if is_dialled || !dials {
            (self.since, self.logged) = (None, None);
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let due = now.since(since) >= LASTS_MS && self.logged.is_none_or(|at| now.since(at) >= AGAIN_MS);
        if due {
            self.logged = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_after_a_while_and_again_until_another_server_dials() {
        let mut one_way = OneWay::default();
        assert!(!one_way.is_due(Millis(50_000), false, false), "nothing is connected");
        let due = |one_way: &mut OneWay, seconds: u64| one_way.is_due(Millis(seconds * 1000), true, false);
        assert_eq!(
            [100, 109, 110, 111, 169, 170].map(|at| due(&mut one_way, at)),
            [false, false, true, false, false, true]
        );
        assert!(!one_way.is_due(Millis(200_000), true, true), "a server dials");
        assert_eq!([201, 211].map(|at| due(&mut one_way, at)), [false, true]);
        assert!(!one_way.is_due(Millis(300_000), false, false), "nothing is connected any more");
    }
}
