//! SASL with DIGEST-MD5 (RFC 2831), as ZooKeeper's server speaks it: `md5-sess`, protection `auth` alone, one realm.
//!
//! Pure. The caller brings the users and an unpredictable nonce. A password is kept as the hash that the
//! mechanism needs, which is worth as much as the password to an attacker.

use crate::ids::ShardId;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use sha1::Sha1;

/// The realm, which is the server's name for clients too.
const REALM: &str = "zk-sasl-md5";
/// The service and the server's name, as clients have to name them.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";
/// Bytes of a token at most, as in Java.
pub(crate) const TOKEN_BYTES_MAX: usize = 4096;

type Hash = [u8; 16];

/// Users, each with one or more valid passwords.
#[derive(Clone, Default)]
pub struct Users {
    /// `MD5(user:realm:password)` of each password.
    hashes: BTreeMap<String, Vec<Hash>>,
}

impl Users {
    /// Adds a password of a user; one of them suffices.
    pub fn add(&mut self, name: &str, password: &str) {
        self.hashes.entry(name.into()).or_default().push(secret(name, REALM, password));
    }

    /// Sets the only password of a user.
    pub fn replace(&mut self, name: &str, password: &str) {
        self.hashes.remove(name);
        self.add(name, password);
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// Text as the mechanism hashes it: ISO 8859-1 if that has all of its characters, else UTF-8 (RFC 2831, 2.1.2.1).
fn encoded(text: &str) -> Vec<u8> {
    let latin: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
    latin.unwrap_or_else(|_| text.as_bytes().into())
}

/// The client's token is not what the mechanism asks for, or proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

/// A proven user, and the server's proof for the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub(crate) user: String,
    pub(crate) proof: String,
}

/// A nonce that cannot be guessed without the key; another one for each shard and count.
pub(crate) fn nonce(key: &[u8; 16], shard: ShardId, count: u64) -> String {
    let hash = Sha1::new().chain_update(key).chain_update(shard.0.to_be_bytes()).chain_update(count.to_be_bytes());
    STANDARD.encode(hash.finalize())
}

/// The challenge that answers the client's first token. A nonce is good for one exchange.
pub(crate) fn challenge(nonce: &str) -> String {
    format!("realm=\"{REALM}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess")
}

/// Verifies the client's answer to the challenge with this nonce.
pub(crate) fn verify(nonce: &str, token: &[u8], users: &Users) -> Result<Proven, Failed> {
    if nonce.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(Failed);
    }
    let directives = directives(token)?;
    let one = |name: &str| directives.get(name).map(|value| &**value);
    let must = |name: &str| one(name).ok_or(Failed);
    let is_utf8 = one("charset").map(|charset| charset.eq_ignore_ascii_case(b"utf-8"));
    let text = |bytes: &[u8]| match is_utf8 {
        Some(true) => String::from_utf8(bytes.into()).map_err(|_| Failed),
        _ => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
    };
    let (user, cnonce, uri) = (text(must("username")?)?, must("cnonce")?, must("digest-uri")?);
    let is_ours = must("nonce")? == nonce.as_bytes()
        && must("nc")? == b"00000001"
        && one("qop").is_none_or(|qop| qop == b"auth")
        && one("realm").is_none_or(|realm| realm == REALM.as_bytes())
        && uri.eq_ignore_ascii_case(DIGEST_URI.as_bytes())
        && is_utf8 != Some(false);
    if !is_ours {
        return Err(Failed);
    }
    let response = must("response")?;
    let shared = Shared { nonce: nonce.as_bytes(), cnonce, uri, authzid: one("authzid") };
    for hash in users.hashes.get(&user).into_iter().flatten() {
        if is_equal(shared.proof(hash, b"AUTHENTICATE:").as_bytes(), response) {
            return Ok(Proven { user, proof: format!("rspauth={}", shared.proof(hash, b":")) });
        }
    }
    Err(Failed)
}

/// The client's answer to a challenge.
pub struct Response {
    /// For the server.
    pub token: String,
    /// The answer of a server that knows the user too.
    pub proof: String,
}

/// The answer of a client to the server's challenge, `None` if that is no challenge of this mechanism. `random` is not used twice.
pub fn respond(challenge: &[u8], user: &str, password: &str, random: &[u8; 16]) -> Option<Response> {
    let challenge = directives(challenge).ok()?;
    let text = |name: &str| core::str::from_utf8(challenge.get(name)?).ok();
    let (nonce, realm) = (text("nonce")?, text("realm").unwrap_or_default());
    if text("algorithm")? != "md5-sess" || [user, nonce, realm].iter().any(|text| text.contains(['"', '\\'])) {
        return None;
    }
    let cnonce = STANDARD.encode(random);
    let hash = secret(user, realm, password);
    let (nonce, uri) = (nonce.as_bytes(), DIGEST_URI.as_bytes());
    let shared = Shared { nonce, cnonce: cnonce.as_bytes(), uri, authzid: None };
    let proof = shared.proof(&hash, b"AUTHENTICATE:");
    let nonce = text("nonce")?;
    Some(Response {
        token: format!(
            "charset=utf-8,username=\"{user}\",realm=\"{realm}\",nonce=\"{nonce}\",nc=00000001,cnonce=\"{cnonce}\",\
             digest-uri=\"{DIGEST_URI}\",maxbuf=65536,response={proof},qop=auth"
        ),
        proof: format!("rspauth={}", shared.proof(&hash, b":")),
    })
}

/// `MD5(user:realm:password)`.
fn secret(user: &str, realm: &str, password: &str) -> Hash {
    let mut hash = Md5::new();
    for part in [&*encoded(user), b":", realm.as_bytes(), b":", &*encoded(password)] {
        hash.update(part);
    }
    hash.finalize().into()
}

/// The values that both sides know, without the password.
struct Shared<'t> {
    nonce: &'t [u8],
    cnonce: &'t [u8],
    uri: &'t [u8],
    authzid: Option<&'t [u8]>,
}

impl Shared<'_> {
    /// `HEX(KD(HEX(H(A1)), nonce:nc:cnonce:qop:HEX(H(A2))))` (RFC 2831, 2.1.2.1); `before` is what A2 begins with.
    fn proof(&self, user: &Hash, before: &[u8]) -> String {
        let mut a1 = Md5::new();
        for part in [user, &b":"[..], self.nonce, b":", self.cnonce] {
            a1.update(part);
        }
        if let Some(authzid) = self.authzid {
            a1.update(b":");
            a1.update(authzid);
        }
        let a2 = Md5::new().chain_update(before).chain_update(self.uri).finalize();
        let mut whole = Md5::new();
        for part in [hex(&a1.finalize()).as_bytes(), b":", self.nonce, b":00000001:", self.cnonce, b":auth:"] {
            whole.update(part);
        }
        hex(&whole.chain_update(hex(&a2)).finalize())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In time that does not depend on where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

/// `name=value` or `name="value"`, commas between them; none comes twice.
fn directives(token: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, Failed> {
    let mut found = BTreeMap::new();
    let mut rest = token.trim_ascii_start();
    while !rest.is_empty() {
        let equals = rest.iter().position(|byte| *byte == b'=').ok_or(Failed)?;
        let name = core::str::from_utf8(rest[..equals].trim_ascii()).map_err(|_| Failed)?.to_ascii_lowercase();
        rest = rest[equals + 1..].trim_ascii_start();
        let mut value = Vec::new();
        if let Some(mut quoted) = rest.strip_prefix(b"\"") {
            loop {
                let (byte, after) = quoted.split_first().ok_or(Failed)?;
                quoted = after;
                match byte {
                    b'"' => break,
                    b'\\' => {
                        let (byte, after) = quoted.split_first().ok_or(Failed)?;
                        value.push(*byte);
                        quoted = after;
                    }
                    byte => value.push(*byte),
                }
            }
            rest = quoted.trim_ascii_start();
        } else {
            let end = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
            value.extend_from_slice(rest[..end].trim_ascii());
            rest = &rest[end..];
        }
        if name.is_empty() || found.insert(name, value).is_some() {
            return Err(Failed);
        }
        match rest.split_first() {
            None => {}
            Some((b',', after)) => rest = after.trim_ascii_start(),
            Some(_) => return Err(Failed),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    /// Shards have one key, and each counts from the beginning.
    #[test]
    fn no_two_exchanges_have_one_nonce() {
        let nonce = |shard, count| super::nonce(&[7; 16], ShardId(shard), count);
        assert!(nonce(0, 1) != nonce(1, 1) && nonce(0, 1) != nonce(0, 2));
    }

    use super::*;

    const NONCE: &str = "OA6MG9tEQGm2hh";

    fn users() -> Users {
        let mut users = Users::default();
        users.add("chris", "secret");
        users.add("chris", "newer");
        users.add("Jürgen", "pä\"ss");
        users
    }

    fn response(user: &str, password: &str, more: &str) -> String {
        let hash: Hash = {
            let mut one = Users::default();
            one.add(user, password);
            one.hashes[user][0]
        };
        let shared =
            Shared { nonce: NONCE.as_bytes(), cnonce: b"OA6MHXh6VqTrRk", uri: DIGEST_URI.as_bytes(), authzid: None };
        let proof = shared.proof(&hash, b"AUTHENTICATE:");
        format!(
            "charset=utf-8,username=\"{user}\",realm=\"{REALM}\",nonce=\"{NONCE}\",nc=00000001,cnonce=\"OA6MHXh6VqTrRk\",\
             digest-uri=\"{DIGEST_URI}\",response={proof},qop=auth{more}"
        )
    }

    fn answer(token: &[u8]) -> Result<Proven, Failed> {
        verify(NONCE, token, &users())
    }

    /// The example of RFC 2831, section 4, with the names of its server.
    #[test]
    fn proofs_are_those_of_the_rfc() {
        let user = Md5::digest(b"chris:elwood.innosoft.com:secret").into();
        let uri = b"imap/elwood.innosoft.com";
        let shared = Shared { nonce: b"OA6MG9tEQGm2hh", cnonce: b"OA6MHXh6VqTrRk", uri, authzid: None };
        assert_eq!(shared.proof(&user, b"AUTHENTICATE:"), "d388dad90d4bbd760a152321f2143af7");
        assert_eq!(shared.proof(&user, b":"), "ea40f60335c427b5527b84dbabcdfffd");
    }

    #[test]
    fn each_valid_password_proves_its_user() {
        for (user, password) in [("chris", "secret"), ("chris", "newer"), ("Jürgen", "pä\"ss")] {
            let proven = answer(response(user, password, "").as_bytes());
            assert!(matches!(proven, Ok(Proven { user: found, .. }) if found == user));
        }
        for (user, password) in [("chris", "other"), ("eve", "secret")] {
            assert_eq!(answer(response(user, password, "").as_bytes()), Err(Failed));
        }
    }

    #[test]
    fn the_two_halves_understand_each_other() {
        for (user, password) in [("chris", "newer"), ("Jürgen", "pä\"ss")] {
            let response = respond(challenge(NONCE).as_bytes(), user, password, &[7; 16]).expect("a challenge");
            let proven = answer(response.token.as_bytes()).expect("a proof");
            assert_eq!((proven.user.as_str(), proven.proof), (user, response.proof));
        }
        for wrong in ["", "nonce=\"x\"", "nonce=\"x\",algorithm=md5", "nonce=\"x\\\"\",algorithm=md5-sess"] {
            assert!(respond(wrong.as_bytes(), "chris", "secret", &[7; 16]).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_token_that_is_not_whole_proves_nothing() {
        let good = response("chris", "secret", "");
        for end in 0..good.len() - ",qop=auth".len() {
            assert_eq!(answer(&good.as_bytes()[..end]), Err(Failed), "{end}");
        }
        for (from, to) in [
            ("nc=00000001", "nc=00000002"),
            ("qop=auth", "qop=auth-int"),
            ("zookeeper/", "other/"),
            (NONCE, "another"),
            ("charset=utf-8", "charset=x"),
            ("realm=\"zk", "realm=\"xk"),
            ("username", "username=\"eve\",username"),
        ] {
            assert_eq!(answer(good.replace(from, to).as_bytes()), Err(Failed), "{to}");
        }
        assert_eq!(answer(response("chris", "secret", &",x=y".repeat(2000)).as_bytes()), Err(Failed));
    }
}
