//! The items of a dump as objects of JSON Lines.

use corral_storage::DumpItem;
use serde_json::{Value, json};

use crate::cli::log::transactions::hex;

/// The object of an item, or `None` for an unknown kind.
pub(super) fn of(item: &DumpItem) -> Option<Value> {
    Some(match item {
        DumpItem::Durable { file, watermark, is_held } => {
            json!({"kind": "durable", "file": file, "durable_to": watermark, "is_held": is_held})
        }
        DumpItem::Segment { file, bytes, generation, base, fault, watermark, .. } => json!({
            "kind": "segment", "file": file, "bytes": bytes, "generation": generation, "position": base,
            "durable_to": watermark, "fault": fault,
        }),
        DumpItem::Record(record) => json!({
            "kind": "record", "file": record.file, "offset": record.offset, "record": format!("{:?}", record.kind),
            "term": record.term, "index": record.index, "first_zxid": hex(record.first_zxid),
            "durable_to": record.watermark, "bytes": record.payload_bytes, "is_valid": record.payload_checks,
        }),
        DumpItem::Mark { file, offset, watermark } => {
            json!({"kind": "mark", "file": file, "offset": offset, "durable_to": watermark})
        }
        DumpItem::Gap { file, offset, bytes, zero } => {
            json!({"kind": "gap", "file": file, "offset": offset, "bytes": bytes, "is_free": zero})
        }
        DumpItem::Unreadable { file, error, .. } => json!({"kind": "unreadable", "file": file, "error": error}),
        _ => return None,
    })
}
