//! `GET /top`: the clients and paths that load this server most, as JSON or text. ZooKeeper has no such command.

use std::net::IpAddr;

use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use corral_core::ids::SessionId;
use corral_core::report::Gathered;
use corral_core::report::top::{self, TopRow};
use corral_core::shard::pieces::Held;
use serde::Serialize;
use serde_json::{Map, Value};

use super::json;
use super::json::object;

/// The answer. The query `text` asks for text.
pub(super) fn answer(gathered: &Gathered, uri: &Uri) -> Response {
    let clients = &gathered.report.top;
    if uri.query() == Some("text") {
        return top::text(clients).into_response();
    }
    let body = object(|fields| {
        fields.put("milliseconds", &clients.loads.took_ms);
        fields.put("addresses", &rows(&top::addresses(clients), |address| vec![("address", address.to_string())]));
        let session = |of: &&(SessionId, IpAddr)| vec![("session_id", of.0.to_string()), ("address", of.1.to_string())];
        fields.put("sessions", &rows(&top::sessions(clients), session));
        fields.put("paths", &rows(&top::prefixes(clients), |prefix| vec![("path", prefix.to_string())]));
        fields.put("command", "top");
        fields.put("error", &None::<&str>);
    });
    json(StatusCode::OK, body)
}

fn rows<K>(rows: &[TopRow<K>], name: impl Fn(&K) -> Vec<(&'static str, String)>) -> Vec<impl Serialize> {
    let object = |row: &TopRow<K>| -> Map<String, Value> {
        let TopRow { key, requests_per_second, bytes_per_second, work_percent, held } = row;
        let Held { connections, waiting, watches } = held;
        let numbers = [
            ("requests_per_second", requests_per_second),
            ("bytes_per_second", bytes_per_second),
            ("work_percent", work_percent),
            ("waiting_requests", waiting),
            ("watches", watches),
            ("connections", connections),
        ];
        let names = name(key).into_iter().map(|(field, name)| (field.to_owned(), name.into()));
        names.chain(numbers.map(|(field, number)| (field.to_owned(), (*number).into()))).collect()
    };
    rows.iter().map(object).collect()
}
