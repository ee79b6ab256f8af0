//! The connections of a shard, by slot.

use crate::ids::ConnId;
use crate::shard::conn::Conn;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The connections of a shard by slot. A slot's generation grows with each connection, so a late message for a former
/// connection finds none.
#[derive(Debug, Default)]
pub(crate) struct Conns {
    slots: Vec<Slot>,
    free: Vec<u32>,
    count: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    conn: Option<Box<Conn>>,
}

impl Conns {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Slots, taken or free.
    pub(crate) const fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn insert(&mut self, build: impl FnOnce(ConnId) -> Conn) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, conn: None });
            u32::try_from(self.slots.len() - 1).expect("fewer connections than 2^32")
        });
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        let id = ConnId { slot, generation: place.generation };
        place.conn = Some(Box::new(build(id)));
        self.count += 1;
        id
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation)?.conn.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?.conn.as_deref_mut()
    }

    /// Takes a connection out while a request of its is served; `put_back` must follow, or `forget` and `free`.
    pub(crate) fn take(&mut self, id: ConnId) -> Option<Box<Conn>> {
        self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?.conn.take()
    }

    pub(crate) fn put_back(&mut self, conn: Box<Conn>) {
        let slot = &mut self.slots[conn.id.slot as usize];
        debug_assert!(slot.conn.is_none() && slot.generation == conn.id.generation);
        slot.conn = Some(conn);
    }

    /// Ends the life of a connection that was taken out; its slot is not free yet.
    pub(crate) const fn forget(&mut self) {
        self.count -= 1;
    }

    /// Nothing is left of a connection that was forgotten.
    pub(crate) fn free(&mut self, id: ConnId) {
        self.free.push(id.slot);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().filter_map(|slot| slot.conn.as_deref())
    }

    /// The connections in `count` slots, from a slot on.
    pub(crate) fn range(&self, from: usize, count: usize) -> impl Iterator<Item = &Conn> {
        self.slots.iter().skip(from).take(count).filter_map(|slot| slot.conn.as_deref())
    }

    pub(crate) fn range_mut(&mut self, from: usize, count: usize) -> impl Iterator<Item = &mut Conn> {
        self.slots.iter_mut().skip(from).take(count).filter_map(|slot| slot.conn.as_deref_mut())
    }

    /// The slot behind those, if there are any more.
    pub(crate) fn after(&self, from: usize, count: usize) -> Option<usize> {
        Some(from + count).filter(|next| *next < self.slots.len())
    }
}
