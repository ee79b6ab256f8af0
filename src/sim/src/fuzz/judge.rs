//! The expectations of a client: the answers that it is owed, their order, and the form of each.
//!
//! Reads the bytes of one connection in both directions with a framing of its own. Knows no server. Where a request
//! makes its own answers ambiguous (an xid reserved for something else) only their form is judged from then on.

use std::collections::VecDeque;

use corral_wire::consts::{XID_AUTH, XID_NOTIFICATION, XID_PING};
use corral_wire::records::{ConnectResponse, ReplyHeader, RequestHeader};
use corral_wire::{OpCode, Reader};

use super::records::{self, EVENT, Step};
use super::tally::Tally;
use crate::violation::{Checked, Violation, require};

#[derive(Default)]
pub(super) struct Judge {
    sent: Vec<u8>,
    received: Vec<u8>,
    greeted: bool,
    /// The server has said yes or no to the session.
    connected: bool,
    /// A four-letter command or something malformed was sent: nothing framed need follow.
    lost: bool,
    /// Xids that mean two things were used.
    ambiguous: bool,
    owed: VecDeque<(i32, Option<OpCode>)>,
    /// Auth and SASL packets are answered at once, ahead of requests that wait.
    auths: u64,
    sasls: VecDeque<i32>,
    zxid: i64,
}

/// A session as its client knows it.
pub(super) type Session = (i64, [u8; 16]);

impl Judge {
    pub(super) fn sends(&mut self, bytes: &[u8], frame_bytes_max: usize) {
        if self.lost {
            return;
        }
        self.sent.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(word) = self.sent[used..].first_chunk::<4>() {
            let Some(length) = usize::try_from(i32::from_be_bytes(*word)).ok().filter(|l| *l <= frame_bytes_max) else {
                self.lost = true;
                break;
            };
            let Some(frame) = self.sent[used + 4..].get(..length) else { break };
            if !self.greeted {
                self.greeted = true;
            } else if let Ok(header) = RequestHeader::decode(&mut Reader::new(frame)) {
                let op = OpCode::from_i32(header.op);
                let is_reserved = matches!(header.xid, XID_NOTIFICATION | XID_PING | XID_AUTH);
                match op {
                    Some(OpCode::Auth) => {
                        self.ambiguous |= header.xid != XID_AUTH;
                        self.auths += 1;
                    }
                    Some(OpCode::Ping) => self.owed.push_back((XID_PING, op)),
                    Some(OpCode::Sasl) => {
                        self.ambiguous |= is_reserved || self.owed.iter().any(|(xid, _)| *xid == header.xid);
                        self.sasls.push_back(header.xid);
                    }
                    _ => {
                        self.ambiguous |= is_reserved || self.sasls.contains(&header.xid);
                        self.owed.push_back((header.xid, op));
                    }
                }
            } else {
                self.lost = true;
            }
            used += 4 + length;
        }
        self.sent.drain(..used);
    }

    /// Whether the client has begun to speak.
    pub(super) fn has_greeted(&self) -> bool {
        self.lost || self.greeted || !self.sent.is_empty()
    }

    /// The server's bytes come. Gives the session if it has begun.
    pub(super) fn receives(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<Option<Session>, Violation> {
        if !self.greeted {
            // The answer to a word is text.
            require(str::from_utf8(bytes).is_ok(), "framing", || format!("{bytes:x?} before a connect request"))?;
            return Ok(None);
        }
        self.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        let mut begun = None;
        while let Some((word, behind)) = rest.split_first_chunk::<4>() {
            let told = i32::from_be_bytes(*word);
            let length = usize::try_from(told).map_err(|_| Violation::of("framing", format!("length word {told}")))?;
            let Some((frame, behind)) = behind.split_at_checked(length) else { break };
            rest = behind;
            if self.connected {
                self.frame(frame, tally)?;
            } else {
                begun = self.greeting(frame)?;
            }
        }
        self.received = rest.to_vec();
        Ok(begun)
    }

    fn greeting(&mut self, frame: &[u8]) -> Result<Option<Session>, Violation> {
        let mut reader = Reader::new(frame);
        let response = ConnectResponse::decode(&mut reader)
            .ok()
            .filter(|_| reader.remaining() == 0)
            .ok_or_else(|| Violation::of("framing", format!("{frame:x?} in answer to a connect request")))?;
        self.connected = true;
        let password = response.passwd.and_then(|bytes| bytes.try_into().ok());
        require(password.is_some(), "framing", || format!("a password of {:x?}", response.passwd))?;
        require((response.timeout_ms > 0) == (response.session_id != 0), "session", || format!("{response:?}"))?;
        Ok(password.filter(|_| response.timeout_ms > 0).map(|password| (response.session_id, password)))
    }

    fn frame(&mut self, frame: &[u8], tally: &mut Tally) -> Checked {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader)
            .map_err(|error| Violation::of("framing", format!("{frame:x?} has no header: {error}")))?;
        let body = &frame[frame.len() - reader.remaining()..];
        if header.zxid > 0 {
            require(header.zxid >= self.zxid, "zxids", || format!("{} after {}", header.zxid, self.zxid))?;
            self.zxid = header.zxid;
        }
        if self.ambiguous {
            return Ok(());
        }
        if header.xid == XID_NOTIFICATION {
            tally.events += 1;
            return whole(EVENT, body, "a notification");
        }
        if header.xid == XID_AUTH {
            require(self.auths > 0 && body.is_empty(), "order", || format!("an answer to no auth packet, {body:x?}"))?;
            self.auths -= 1;
            return Ok(());
        }
        let first_sasl = self.sasls.front().copied().filter(|xid| *xid == header.xid);
        let owed = first_sasl.map(|xid| (xid, Some(OpCode::Sasl))).or_else(|| self.owed.pop_front());
        if first_sasl.is_some() {
            self.sasls.pop_front();
        }
        let (xid, op) = owed.ok_or_else(|| Violation::of("order", format!("{header:?} answers nothing")))?;
        require(header.xid == xid, "order", || format!("{header:?} comes where {xid} ({op:?}) is due"))?;
        if header.err != 0 {
            tally.refused += 1;
            return require(body.is_empty(), "framing", || format!("{header:?} with a body {body:x?}"));
        }
        tally.accepted += 1;
        let op = op.ok_or_else(|| Violation::of("framing", format!("{header:?} to an unknown operation")))?;
        whole(records::response_step(op), body, op.name())
    }

    /// Checks that nothing is owed to this connection, which the server has left open, when the server has nothing to
    /// do.
    pub(super) fn is_served(&self) -> Checked {
        require(self.received.is_empty(), "framing", || format!("half a frame: {:x?}", self.received))?;
        if self.lost || self.ambiguous {
            return Ok(());
        }
        require(self.owed.is_empty() && self.auths == 0 && self.sasls.is_empty(), "progress", || {
            format!("{} requests and {} auth packets are never answered: {:?}", self.owed.len(), self.auths, self.owed)
        })?;
        require(!self.greeted || self.connected, "progress", || "a connect request is never answered".to_owned())
    }
}

/// The body is one record and nothing else.
fn whole(step: Step, body: &[u8], what: &str) -> Checked {
    let mut reader = Reader::new(body);
    let mut again = Vec::with_capacity(body.len());
    let decoded = step(&mut reader, &mut again);
    require(decoded.is_ok() && reader.remaining() == 0 && again == body, "framing", || {
        format!("the body of {what} is {body:x?}: {decoded:?}, {} left over", reader.remaining())
    })
}
