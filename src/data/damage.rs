//! Whether a log that is read from outside is damaged: `corral log dump` and the scrubber ask.
//!
//! Pure: the items of a dump come in, a sentence comes out.

use corral_storage::DumpItem;

/// Finds the places that hold no valid record, and how far the log was durable. A server may write the log meanwhile.
/// So a place is damage only if it holds no valid record when it is read once more, after that position is known.
#[derive(Default)]
pub(crate) struct Damage {
    base: Option<u64>,
    /// Highest log position that is known to be durable.
    durable: u64,
    /// The first in each file. There is at most one in each, so it grows with the files alone.
    suspects: Vec<DamagedAt>,
    /// The statement of the file `DURABLE` about a segment that is missing with all behind it.
    missing: Option<String>,
    /// The first segment that the disk cannot give back.
    lost: Option<String>,
    /// The first segment that could not be read for another reason: nothing is known of it.
    unread: Option<String>,
}

/// A place without a valid record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DamagedAt {
    file: String,
    /// `None` for a segment with a damaged header.
    offset: Option<u64>,
    position: u64,
}

impl Damage {
    pub(crate) fn add(&mut self, item: &DumpItem) {
        match item {
            DumpItem::Durable { file, watermark, is_held } => {
                if *is_held {
                    self.durable = self.durable.max(*watermark);
                } else {
                    let sentence = format!(
                        "the log is damaged: {file} is missing, and the log was durable up to {watermark} in it"
                    );
                    self.missing = Some(sentence);
                }
            }
            DumpItem::Segment { file, base, fault, watermark, .. } => {
                self.base = *base;
                self.durable = self.durable.max(watermark.unwrap_or(0));
                if fault.is_some() {
                    self.suspects.push(DamagedAt { file: file.clone(), offset: None, position: 0 });
                }
            }
            DumpItem::Record(record) => {
                self.durable = self.durable.max(record.watermark);
                if !record.payload_checks {
                    self.suspect(&record.file, record.offset);
                }
            }
            DumpItem::Mark { file, offset, watermark } => {
                self.durable = self.durable.max(*watermark);
                // The next record goes here, so this is where a second look goes on, not behind it.
                self.suspect(file, *offset);
            }
            DumpItem::Gap { file, offset, .. } => self.suspect(file, *offset),
            DumpItem::Unreadable { file, error, is_lost } => {
                let (of, sentence) = match is_lost {
                    true => (&mut self.lost, format!("the log is damaged: the disk cannot read {file}: {error}")),
                    false => (&mut self.unread, format!("{file}: {error}")),
                };
                of.get_or_insert(sentence);
            }
            _ => {}
        }
    }

    fn suspect(&mut self, file: &str, offset: u64) {
        if self.suspects.last().is_some_and(|place| place.file == file) {
            return;
        }
        if let Some(base) = self.base {
            let position = base.saturating_add(offset);
            self.suspects.push(DamagedAt { file: file.to_owned(), offset: Some(offset), position });
        }
    }

    /// The first place that `confirm` finds damaged, given file, offset and the durable position.
    pub(crate) fn sentence<E>(
        &self,
        mut confirm: impl FnMut(&str, Option<u64>, u64) -> Result<Option<u64>, E>,
    ) -> Result<Option<String>, E> {
        for place in self.suspects.iter().filter(|place| place.position < self.durable || place.offset.is_none()) {
            let Some(at) = confirm(&place.file, place.offset, self.durable)? else { continue };
            let Some(offset) = place.offset else {
                return Ok(Some(format!("the log is damaged: the header of {} is not valid", place.file)));
            };
            return Ok(Some(format!(
                "the log is damaged: {} holds no valid record at offset {at}, which is position {} of the log, and it was \
                 durable up to {}",
                place.file,
                place.position.saturating_add(at.saturating_sub(offset)),
                self.durable
            )));
        }
        Ok(self.lost.as_ref().or(self.missing.as_ref()).cloned())
    }

    /// The first segment of which nothing is known, and why.
    pub(crate) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use corral_storage::log::RecordKind;

    use super::*;
    use corral_storage::DumpRecord;

    fn segment(base: u64, watermark: u64) -> DumpItem {
        let (file, bytes) = ("log-1".to_owned(), 10_000);
        DumpItem::Segment {
            file,
            bytes,
            generation: 1,
            salt: 1,
            base: Some(base),
            fault: None,
            watermark: Some(watermark),
        }
    }

    fn record(offset: u64, watermark: u64, payload_checks: bool) -> DumpItem {
        DumpItem::Record(DumpRecord {
            file: "log-1".to_owned(),
            offset,
            kind: RecordKind::Entry,
            term: 1,
            index: 1,
            first_zxid: 1,
            watermark,
            payload_bytes: 8,
            payload_crc: 0,
            payload_checks,
        })
    }

    fn gap(offset: u64) -> DumpItem {
        DumpItem::Gap { file: "log-1".to_owned(), offset, bytes: 100, zero: false }
    }

    fn mark(offset: u64, watermark: u64) -> DumpItem {
        DumpItem::Mark { file: "log-1".to_owned(), offset, watermark }
    }

    /// The report if the places that `still_bad` names hold no valid record when they are read once more.
    fn judged(items: &[DumpItem], still_bad: bool) -> Option<String> {
        let mut damage = Damage::default();
        items.iter().for_each(|item| damage.add(item));
        let sentence = damage.sentence(|_, offset, _| Ok::<_, ()>(still_bad.then_some(offset.unwrap_or(0))));
        sentence.expect("it is read")
    }

    #[test]
    fn what_was_durable_and_is_no_record_is_damage() {
        let found = |items: &[DumpItem]| {
            assert_eq!(judged(items, false), None, "a server wrote it meanwhile");
            judged(items, true).expect("damage is seen")
        };
        assert!(
            found(&[segment(1000, 1300), record(100, 1100, true), gap(200)])
                .contains("offset 200, which is position 1200")
        );
        let later = [segment(1000, 0), record(100, 0, true), gap(200), record(300, 1250, true)];
        assert!(found(&later).contains("durable up to 1250"));
        assert!(found(&[segment(1000, 1300), record(100, 1100, false), gap(200)]).contains("offset 100"));
        let marked = [segment(1000, 0), record(100, 0, true), record(200, 1100, false), mark(300, 1300)];
        assert!(found(&marked).contains("offset 200"));
        let marked = [segment(1000, 0), record(100, 0, true), gap(200), mark(300, 1300), gap(364)];
        assert!(found(&marked).contains("offset 200"));
        let of_a_later_file = [segment(1000, 1200), record(100, 1100, true), gap(200), segment(11_000, 11_300)];
        assert!(found(&of_a_later_file).contains("offset 200"));
        let stated = |is_held| DumpItem::Durable { file: "log-1".to_owned(), watermark: 1300, is_held };
        assert!(found(&[stated(true), segment(1000, 0), record(100, 0, true), gap(200)]).contains("offset 200"));
        let missing = [stated(false), segment(1000, 0), record(100, 0, true), gap(200)];
        assert!(judged(&missing, false).expect("damage is seen").contains("log-1 is missing"));
        let mut header = segment(1000, 0);
        let DumpItem::Segment { base, fault, .. } = &mut header else { unreachable!("it is a segment") };
        (*base, *fault) = (None, Some("damaged"));
        assert!(found(&[header, gap(200)]).contains("header"));
    }

    #[test]
    fn an_unfinished_end_is_none() {
        let judged = |items: &[DumpItem]| judged(items, true);
        assert_eq!(judged(&[]), None);
        assert_eq!(judged(&[segment(1000, 1200), record(100, 1100, true), gap(200)]), None);
        assert_eq!(judged(&[segment(1000, 0), record(100, 0, true), mark(200, 1200), gap(264)]), None);
        assert_eq!(judged(&[segment(1000, 1200), record(100, 1100, true), record(200, 1200, false)]), None);
    }
}
