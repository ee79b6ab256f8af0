//! Selects the operations that `corral log dump` shows.

use clap::Args;

use crate::cli::log::transactions::Operation;
use crate::cli::time;

#[derive(Args)]
pub(super) struct Filter {
    /// Show only the operations on paths that begin with this
    #[arg(long, value_name = "PREFIX")]
    path: Option<String>,
    /// Show only the operations of this session
    #[arg(long, value_name = "0xID", value_parser = hex)]
    session: Option<u64>,
    /// Show only the operations with these zxids, such as 0x5..0xa. One end may be missing
    #[arg(long, value_name = "A..B", value_parser = range)]
    zxid: Option<(u64, u64)>,
    /// Show only the operations since this time, in UTC, such as 2026-11-24 or 2026-11-24T02:49
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    since: Option<i64>,
}

impl Filter {
    /// Whether it takes everything.
    pub(super) fn is_empty(&self) -> bool {
        self.path.is_none() && self.session.is_none() && self.zxid.is_none() && self.since.is_none()
    }

    pub(super) fn takes(&self, operation: &Operation) -> bool {
        let is_below = |prefix: &String| operation.path().is_some_and(|path| path.starts_with(prefix));
        self.path.as_ref().is_none_or(is_below)
            && self.session.is_none_or(|id| id == operation.session.cast_unsigned())
            && self.zxid.is_none_or(|(from, to)| operation.zxid.is_some_and(|zxid| (from..=to).contains(&zxid)))
            && self.since.is_none_or(|since| operation.time_ms >= since)
    }
}

/// A zxid or a session as it is printed. Answers by HTTP have decimal numbers, so digits alone could be either.
pub(in crate::cli) fn hex(text: &str) -> Result<u64, String> {
    let of = |digits| u64::from_str_radix(digits, 16).ok();
    text.strip_prefix("0x").and_then(of).ok_or_else(|| match (of(text), text.parse::<u64>()) {
        (Some(_), Ok(decimal)) => format!("write 0x{text}, or 0x{decimal:x} if {text} is decimal"),
        (Some(_), _) => format!("write 0x{text}"),
        _ => "give a hexadecimal number, such as 0x100000300000729".to_owned(),
    })
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let Some((from, to)) = text.split_once("..") else { return hex(text).map(|one| (one, one)) };
    let end = |text: &str, missing| if text.is_empty() { Ok(missing) } else { hex(text) };
    Ok((end(from, 0)?, end(to, u64::MAX)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_they_are_written() {
        assert_eq!(range("0x5..0xa"), Ok((5, 10)));
        assert_eq!((range("0x5.."), range("..0xa"), range("0x7")), (Ok((5, u64::MAX)), Ok((0, 10)), Ok((7, 7))));
        assert!(range("x..").is_err() && hex("-1").is_err() && hex("0x").is_err());
        let advice = "write 0x4294967297, or 0x100000001 if 4294967297 is decimal";
        assert_eq!((hex("4294967297"), hex("a")), (Err(advice.to_owned()), Err("write 0xa".to_owned())));
    }
}
