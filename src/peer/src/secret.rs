//! The proof that both servers hold one shared secret, and the keys of the frames that follow it.
//!
//! Pure, on any thread. The listener answers a handshake with a [`Challenge`]. The dialler, and only then the listener,
//! prove that they hold the secret. A proof is HMAC-SHA-256 over a label of its own for each side, the handshake, the
//! challenge and the dialler's nonce. The listener's proof covers its answer too. So a listener sends nothing that
//! depends on the secret before the dialler has proven itself. No proof is valid for another connection, direction,
//! pair of servers or cluster, and none can be sent back. The key of the frames comes from the same secret and the
//! whole exchange.

use std::fmt;

use ring::{aead, hmac};

use crate::fixed::{HandshakeError, VERSION, check, seal};
use crate::frame::FrameKey;
use crate::handshake::{ANSWER_BYTES, HANDSHAKE_BYTES};

pub use crate::fixed::TOKEN_BYTES;

/// First bytes of a challenge.
pub const CHALLENGE_MAGIC: [u8; 4] = *b"cRcH";
/// First bytes of the proof that a challenge is answered with.
pub const PROOF_MAGIC: [u8; 4] = *b"cRpR";
/// Bytes of a challenge: as many as of an answer, which may come instead.
///
/// Magic 4, version 2, zero 2, nonce 16, checksum 4.
pub const CHALLENGE_BYTES: usize = ANSWER_BYTES;
/// Bytes of the message with the dialler's proof.
///
/// Magic 4, version 2, zero 2, nonce 16, proof 32, checksum 4.
pub const PROOF_BYTES: usize = 60;
/// Bytes of a proof itself, which also follows the answer to one.
pub const SEAL_BYTES: usize = 32;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;
/// Bytes of the shortest secret.
pub const SECRET_BYTES_MIN: usize = 32;
/// Bytes of the longest secret.
pub const SECRET_BYTES_MAX: usize = 1024;
/// Secrets in one file at most: so many proofs are computed for a dialler that has not proven itself.
pub const SECRETS_MAX: usize = 4;
const DIALLER: &[u8] = b"corral link 3: the dialler's proof\0";
const LISTENER: &[u8] = b"corral link 3: the listener's proof\0";
const FRAMES: &[u8] = b"corral link 3: the key of the frames\0";
const PROOF_AT: usize = 8 + NONCE_BYTES;

/// The listener's demand that the dialler prove that it holds the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Random bytes, drawn for this connection.
    pub nonce: [u8; NONCE_BYTES],
}

impl Challenge {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..4].copy_from_slice(&CHALLENGE_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..8 + NONCE_BYTES].copy_from_slice(&self.nonce);
        seal(&mut bytes, CHALLENGE_BYTES - 4);
        bytes
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// Magic, version, checksum or field, whichever is wrong first.
    pub fn decode(bytes: &[u8; CHALLENGE_BYTES]) -> Result<Challenge, HandshakeError> {
        check(bytes, CHALLENGE_MAGIC, CHALLENGE_BYTES - 4)?;
        if bytes[6..8] != [0; 2] {
            return Err(HandshakeError::Field("there are bytes where none are"));
        }
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&bytes[8..8 + NONCE_BYTES]);
        Ok(Challenge { nonce })
    }
}

/// The dialler's reply to a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Random bytes, drawn for this connection.
    pub nonce: [u8; NONCE_BYTES],
    /// [`Secret::prove`] of the dialler's secret.
    pub proof: [u8; SEAL_BYTES],
}

impl Proof {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> [u8; PROOF_BYTES] {
        let mut bytes = [0; PROOF_BYTES];
        bytes[..4].copy_from_slice(&PROOF_MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..PROOF_AT].copy_from_slice(&self.nonce);
        bytes[PROOF_AT..PROOF_AT + SEAL_BYTES].copy_from_slice(&self.proof);
        seal(&mut bytes, PROOF_BYTES - 4);
        bytes
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// Magic, version, checksum or field, whichever is wrong first.
    pub fn decode(bytes: &[u8; PROOF_BYTES]) -> Result<Proof, HandshakeError> {
        check(bytes, PROOF_MAGIC, PROOF_BYTES - 4)?;
        if bytes[6..8] != [0; 2] {
            return Err(HandshakeError::Field("there are bytes where none are"));
        }
        let (mut nonce, mut proof) = ([0; NONCE_BYTES], [0; SEAL_BYTES]);
        nonce.copy_from_slice(&bytes[8..PROOF_AT]);
        proof.copy_from_slice(&bytes[PROOF_AT..PROOF_AT + SEAL_BYTES]);
        Ok(Proof { nonce, proof })
    }
}

/// The messages of one connection up to the proof, as both sides have seen them.
#[derive(Clone, Copy, Debug)]
pub struct Transcript {
    /// The encoded [`Handshake`](crate::Handshake).
    pub handshake: [u8; HANDSHAKE_BYTES],
    /// The encoded [`Challenge`].
    pub challenge: [u8; CHALLENGE_BYTES],
    /// The dialler's nonce.
    pub nonce: [u8; NONCE_BYTES],
}

/// One shared secret.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Makes a secret of [`SECRET_BYTES_MIN`] to [`SECRET_BYTES_MAX`] bytes; `None` for fewer or more.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        let fits = (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len());
        fits.then(|| Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    fn over(&self, label: &[u8], transcript: &Transcript, answer: &[u8]) -> hmac::Context {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [label, &transcript.handshake, &transcript.challenge, &transcript.nonce, answer] {
            context.update(part);
        }
        context
    }

    /// The dialler's proof.
    #[must_use]
    pub fn prove(&self, transcript: &Transcript) -> [u8; SEAL_BYTES] {
        whole(self.over(DIALLER, transcript, &[]).sign())
    }

    /// The listener's proof, which follows its answer.
    #[must_use]
    pub fn seal(&self, transcript: &Transcript, answer: &[u8; ANSWER_BYTES]) -> [u8; SEAL_BYTES] {
        whole(self.over(LISTENER, transcript, answer).sign())
    }

    /// Whether the listener holds this secret. Its time does not depend on where a wrong proof differs.
    #[must_use]
    pub fn is_sealed(&self, transcript: &Transcript, answer: &[u8; ANSWER_BYTES], proof: &[u8; SEAL_BYTES]) -> bool {
        same(self.seal(transcript, answer), proof)
    }

    /// The key with which the frames of this connection are encrypted.
    #[must_use]
    pub fn frame_key(&self, transcript: &Transcript, answer: &[u8; ANSWER_BYTES]) -> FrameKey {
        let bytes = whole(self.over(FRAMES, transcript, answer).sign());
        let key = &bytes[..aead::AES_128_GCM.key_len()];
        let key = aead::UnboundKey::new(&aead::AES_128_GCM, key).expect("the key has its length");
        FrameKey::new(aead::LessSafeKey::new(key))
    }
}

fn whole(tag: hmac::Tag) -> [u8; SEAL_BYTES] {
    tag.as_ref().try_into().expect("HMAC-SHA-256 gives 32 bytes")
}

/// Compares in a time that does not depend on where the two differ.
fn same(left: [u8; SEAL_BYTES], right: &[u8; SEAL_BYTES]) -> bool {
    let differs = left.iter().zip(right).fold(0, |differs, (left, right)| differs | (left ^ right));
    std::hint::black_box(differs) == 0
}

/// Why the text of a file does not hold usable secrets, and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// There is no secret.
    #[error("there is no secret in it; write one (head -c 32 /dev/urandom | base64)")]
    Empty,
    /// A secret is too short or too long.
    #[error(
        "secret {number} has {bytes} bytes; give {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} (head -c 32 /dev/urandom | base64)"
    )]
    Length {
        /// Number of the secret in the file, from 1.
        number: usize,
        /// Bytes of the secret.
        bytes: usize,
    },
    /// There are more than [`SECRETS_MAX`] secrets.
    #[error("there are more than {SECRETS_MAX} secrets; remove those no server proves itself with")]
    TooMany,
}

/// The secrets of a file: this server proves itself with the first, and accepts any of them.
#[derive(Clone, Debug)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Reads a file's text: one secret a line. Empty lines and white space around a secret are ignored.
    ///
    /// # Errors
    /// The fault of the text, and the remedy. The error never holds a part of a secret.
    pub fn of_text(text: &[u8]) -> Result<Secrets, SecretsError> {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let mut secrets = Vec::new();
        for line in lines {
            let Some(secret) = Secret::new(line) else {
                return Err(SecretsError::Length { number: secrets.len() + 1, bytes: line.len() });
            };
            secrets.push(secret);
            if secrets.len() > SECRETS_MAX {
                return Err(SecretsError::TooMany);
            }
        }
        if secrets.is_empty() {
            return Err(SecretsError::Empty);
        }
        Ok(Secrets(secrets))
    }

    /// The secret with which this server proves itself when it dials.
    #[must_use]
    pub fn first(&self) -> &Secret {
        &self.0[0]
    }

    /// The secret with which the dialler has proven itself; `None` if its proof fits none.
    ///
    /// All secrets are tried, so that the time does not depend on which one fits.
    #[must_use]
    pub fn proven(&self, transcript: &Transcript, proof: &[u8; SEAL_BYTES]) -> Option<&Secret> {
        let fits = |secret: &Secret| same(secret.prove(transcript), proof);
        self.0.iter().fold(None, |found, secret| if fits(secret) { Some(secret) } else { found })
    }
}

/// The token by which the server with id `peer` recognises this process on another connection.
///
/// It differs for each server. So a program that listens in another server's place cannot replace this server's
/// connection to a third server, even without a shared secret. `seed` is drawn at random for the process.
#[must_use]
pub fn token(seed: &[u8; SEAL_BYTES], peer: u8) -> [u8; TOKEN_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, seed), &[peer]);
    tag.as_ref()[..TOKEN_BYTES].try_into().expect("HMAC-SHA-256 gives 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{Admission, Answer, ClusterName, Generation, Handshake};
    use crate::{Decoder, FrameError, Kind};

    fn secret(byte: u8) -> Secret {
        Secret::new(&[byte; 32]).expect("long enough")
    }

    fn transcript(from: u8, to: u8, nonces: [u8; 2]) -> Transcript {
        let cluster = ClusterName::new("corral").expect("a name");
        let handshake =
            Handshake { cluster, from, to, generation: Generation::FIRST, incarnation: 7, token: [1; TOKEN_BYTES] };
        let challenge = Challenge { nonce: [nonces[0]; NONCE_BYTES] }.encode();
        Transcript { handshake: handshake.encode(), challenge, nonce: [nonces[1]; NONCE_BYTES] }
    }

    fn answer(verdict: Admission) -> [u8; ANSWER_BYTES] {
        Answer { verdict, id: 2, generation: Generation::FIRST }.encode()
    }

    #[test]
    fn challenges_and_proofs_come_back_and_every_changed_bit_is_noticed() {
        let challenge = Challenge { nonce: [3; NONCE_BYTES] };
        assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        for bit in 0..CHALLENGE_BYTES * 8 {
            let mut bad = challenge.encode();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Challenge::decode(&bad).is_err(), "bit {bit}");
        }
        let proof = Proof { nonce: [4; NONCE_BYTES], proof: [5; SEAL_BYTES] };
        assert_eq!(Proof::decode(&proof.encode()), Ok(proof));
        for bit in 0..PROOF_BYTES * 8 {
            let mut bad = proof.encode();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Proof::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_proof_is_good_for_one_connection_one_side_and_one_secret() {
        let base = transcript(1, 2, [3, 4]);
        let secrets = Secrets(vec![secret(1), secret(2)]);
        for with in [1, 2] {
            let proof = secret(with).prove(&base);
            assert!(secrets.proven(&base, &proof).is_some());
            for other in
                [transcript(2, 1, [3, 4]), transcript(1, 3, [3, 4]), transcript(1, 2, [9, 4]), transcript(1, 2, [3, 9])]
            {
                assert!(secrets.proven(&other, &proof).is_none(), "{other:?}");
            }
            for bit in 0..SEAL_BYTES * 8 {
                let mut bad = proof;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(secrets.proven(&base, &bad).is_none());
            }
            // Sent back it proves nothing.
            assert!(!secret(with).is_sealed(&base, &answer(Admission::Welcome), &proof));
        }
        assert!(secrets.proven(&base, &secret(3).prove(&base)).is_none());
        let (one, welcome) = (secret(1), answer(Admission::Welcome));
        let seal = one.seal(&base, &welcome);
        assert!(one.is_sealed(&base, &welcome, &seal));
        assert!(!one.is_sealed(&base, &answer(Admission::Busy), &seal) && !secret(2).is_sealed(&base, &welcome, &seal));
        assert!(secrets.proven(&base, &seal).is_none());
    }

    #[test]
    fn frames_of_another_connection_or_place_are_refused() {
        let welcome = answer(Admission::Welcome);
        let key = |nonce: u8| secret(1).frame_key(&transcript(1, 2, [3, nonce]), &welcome);
        let frame = |key: &FrameKey, sequence: u64, payload: &[u8]| {
            let mut bytes = Vec::new();
            key.seal(Kind::Raft, sequence, payload, &mut bytes);
            bytes
        };
        let (mut decoder, mut found) = (Decoder::keyed(key(4)), Vec::new());
        let good = frame(&key(4), 0, b"abc");
        for part in good.chunks(1) {
            decoder.feed(part, |frame| found.push(frame.payload)).expect("it is good");
        }
        assert_eq!(found, ["abc"]);
        // Once more, as of another connection, and every bit changed.
        assert_eq!(decoder.feed(&good, |_| panic!("a replay")), Err(FrameError::Sequence { expected: 1, found: 0 }));
        let refused = Decoder::keyed(key(5)).feed(&good, |_| panic!("of another connection"));
        assert_eq!(refused, Err(FrameError::Tag(0)));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // A longer length waits for bytes that do not come.
            let _ = Decoder::keyed(key(4)).feed(&bad, |_| panic!("bit {bit}"));
        }
        // Without a key nothing of it is understood, and the other way round.
        assert!(Decoder::new().feed(&frame(&key(4), 0, &[0; 64]), |_| panic!("without the key")).is_err());
    }

    #[test]
    fn a_file_holds_secrets() {
        let text = |lines: &[&str]| Secrets::of_text(lines.join("\n").as_bytes());
        let (one, two) = ("x".repeat(32), "y".repeat(44));
        for good in [vec![&one[..], ""], vec!["", &one, "  ", &two, ""], vec!["\r", "  ", &one]] {
            assert!(text(&good).is_ok(), "{good:?}");
        }
        assert_eq!(text(&[&one, &two]).expect("two").0.len(), 2);
        // Only the text between the white space at both ends of a line counts.
        let same = text(&[&format!("  {one}\r")]).expect("one");
        let base = transcript(1, 2, [3, 4]);
        assert!(same.proven(&base, &Secret::new(one.as_bytes()).expect("long enough").prove(&base)).is_some());
        let check = |lines: &[&str], words: &str| {
            let error = text(lines).expect_err(words).to_string();
            assert!(error.contains(words) && !error.contains("xxx"), "{error}");
        };
        check(&[], "there is no secret");
        check(&["", " "], "there is no secret");
        check(&[&one, "xxxshort"], "secret 2 has 8 bytes");
        check(&[&"x".repeat(1025)], "secret 1 has 1025 bytes");
        check(&[&one, &one, &one, &one, &one], "more than 4 secrets");
    }

    #[test]
    fn tokens_differ_by_peer_and_process() {
        assert_ne!(token(&[1; 32], 2), token(&[1; 32], 3));
        assert_ne!(token(&[1; 32], 2), token(&[2; 32], 2));
        assert_eq!(token(&[1; 32], 2), token(&[1; 32], 2));
    }
}
