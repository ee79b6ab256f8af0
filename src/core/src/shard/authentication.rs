//! Identities of connections: from auth packets, SASL exchanges and client certificates (protocol chapter 17).

use crate::command::identities_weight;
use crate::ids::Zxid;
use crate::limits::{AUTH_BYTE_COST, IDENTITIES_BYTES_MAX};
use crate::shard::conn::{Close, Conn};
use crate::shard::sasl::{Failed, Proven, Users};
use crate::shard::state::{Served, ShardState};
use crate::shard::{ending, reply, sasl};
use crate::tree::acl::{self, AnySaslUser, Identity};
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::records::{AuthPacket, GetSaslRequest, ReplyHeader, SetSaslResponse};
use corral_wire::{ErrorCode, Reader};

/// Whether the connection has proven an identity of a scheme that every connection must prove.
pub(super) fn is_authenticated(shard: &ShardState, conn: &Conn) -> bool {
    conn.identities.iter().any(|who| shard.config.enforce_schemes.contains(&who.scheme))
}

/// Adds an identity to the connection; done at once, ahead of requests that wait (protocol chapter 17.6).
pub(super) fn authenticate(shard: &mut ShardState, conn: &mut Conn, xid: i32, reader: &mut Reader<'_>) -> Served {
    // The hash of its credential is what it costs.
    shard.turn.spend(AUTH_BYTE_COST * reader.remaining());
    let packet = AuthPacket::decode(reader).map_err(|_| Close::Malformed)?;
    let proven = match (packet.scheme, packet.auth, shard.config.digest) {
        (Some("ip"), ..) => None,
        (Some("digest"), Some(credentials), Some(hash)) => {
            Some(acl::identity("digest", &acl::digest_id(credentials, hash)))
        }
        _ => {
            reply::error(conn.output.buffer(&mut shard.buffers), xid, Zxid(0), ErrorCode::AuthFailed);
            ending::count_sent(shard, conn);
            return Err(Close::AuthFailed);
        }
    };
    if let Some(identity) = proven {
        add_identity(shard, conn, identity)?;
    }
    reply::done(conn.output.buffer(&mut shard.buffers), xid, Zxid(0));
    ending::count_sent(shard, conn);
    Ok(())
}

/// A step of a SASL exchange; done at once, as an auth packet is. The first token may be anything. Without users the
/// exchange ends at once, without an identity and without an error, as ZooKeeper ends it where no mechanism is
/// configured. A null token closes the connection there too.
pub(super) fn sasl(shard: &mut ShardState, conn: &mut Conn, xid: i32, reader: &mut Reader<'_>) -> Served {
    shard.turn.spend(AUTH_BYTE_COST * reader.remaining());
    let request = GetSaslRequest::decode(reader).map_err(|_| Close::Malformed)?;
    let token = request.token.ok_or(Close::Malformed)?;
    let Some(users) = shard.config.sasl_users.clone() else {
        answer_sasl(shard, conn, ReplyHeader::ok(xid, 0), None);
        return Ok(());
    };
    if !shard.sasl.has_begun(conn.id) && token.len() <= sasl::TOKEN_BYTES_MAX {
        let challenge = sasl::challenge(shard.sasl.begin(conn.id, &shard.config.nonce_key, shard.config.shard));
        answer_sasl(shard, conn, ReplyHeader::ok(xid, 0), Some(challenge.as_bytes()));
        return Ok(());
    }
    let nonce = shard.sasl.end(conn.id).ok_or(Failed);
    let proven = nonce.and_then(|nonce| sasl::verify(&nonce, token, &users));
    if let Ok(Proven { user, proof }) = proven {
        add_identity(shard, conn, acl::identity("sasl", &user))?;
        answer_sasl(shard, conn, ReplyHeader::ok(xid, 0), Some(proof.as_bytes()));
        return Ok(());
    }
    let is_enforced = shard.config.enforce_schemes.iter().any(|scheme| &**scheme == "sasl");
    if shard.config.allow_sasl_failed && !is_enforced {
        answer_sasl(shard, conn, ReplyHeader::ok(xid, 0), None);
        return Ok(());
    }
    let code = if is_enforced { ErrorCode::SessionClosedRequireSaslAuth } else { ErrorCode::AuthFailed };
    answer_sasl(shard, conn, ReplyHeader { xid, zxid: 0, err: code.code() }, None);
    Err(Close::AuthFailed)
}

fn answer_sasl(shard: &mut ShardState, conn: &mut Conn, header: ReplyHeader, token: Option<&[u8]>) {
    reply::frame(conn.output.buffer(&mut shard.buffers), |writer| {
        header.encode(writer);
        SetSaslResponse { token }.encode(writer);
    });
    ending::count_sent(shard, conn);
}

/// Exchanges that end from now on are judged by these users.
pub(super) fn set_sasl_users(shard: &mut ShardState, users: Arc<Users>) {
    shard.config.sasl_users = Some(users);
}

/// Adds an identity to those of the connection, or ends it if they would be too many or too long.
pub(super) fn add_identity(shard: &ShardState, conn: &mut Conn, identity: Identity) -> Served {
    let is_super = match &*identity.scheme {
        "digest" => shard.config.super_digest.as_ref() == Some(&identity.id),
        "sasl" => shard.config.sasl_super_users.contains(&identity.id),
        "x509" => shard.config.x509_super.as_ref() == Some(&identity.id),
        _ => false,
    };
    let mut list = Vec::clone(&conn.identities);
    let any = shard.config.any_sasl_user.as_ref().filter(|_| &*identity.scheme == "sasl").map(AnySaslUser::identity);
    for new in is_super.then(|| acl::identity("super", "")).into_iter().chain([identity]).chain(any) {
        if !list.contains(&new) {
            list.push(new);
        }
    }
    let too_many = list.len() > shard.config.limits.identities_per_connection_max;
    if too_many || identities_weight(&list) > IDENTITIES_BYTES_MAX {
        return Err(Close::IdentityLimit);
    }
    conn.identities = Arc::new(list);
    (conn.identity_turn, conn.identity_place) = (0, 0);
    Ok(())
}
