//! Loads of another kind than a stream of requests: what many watches, sessions, contenders or a flood do to a server.
//!
//! One file each, all of the same shape: flags, a run on one thread over a [`Swarm`](crate::swarm::Swarm) of sessions, a
//! report.

mod flood;
mod idle;
mod recipes;
mod sessions;
mod watches;

use anyhow::Result;
use clap::Subcommand;

use crate::plan::Args;
use crate::{charts, load};

/// A sub-command of `corral bench`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Scenario {
    /// Send a stream of requests: throughput and latency. This is what runs without a sub-command
    Load(Box<Args>),
    /// Fire many watches by one write: time to the first and last event, and to the writer's reply
    Watches(watches::WatchArgs),
    /// Open and close sessions, as fast as possible or at a rate: sessions per second, CPU for each
    Sessions(sessions::SessionArgs),
    /// Hold sessions and watches that send nothing: memory and CPU of the server for each
    Idle(idle::IdleArgs),
    /// Contend for a lock or a leadership: acquisitions per second, hand-over time, mutual exclusion
    Recipes(recipes::RecipeArgs),
    /// Send at a fixed rate beside connections with deep queues: latency of the fixed rate
    Flood(flood::FloodArgs),
    /// Draw the plots that standard input describes in JSON; for bench/compare
    #[command(hide = true)]
    Draw,
}

impl Scenario {
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Load(args) => load::run(args),
            Self::Watches(args) => watches::run(args),
            Self::Sessions(args) => sessions::run(args),
            Self::Idle(args) => idle::run(args),
            Self::Recipes(args) => recipes::run(args),
            Self::Flood(args) => flood::run(args),
            Self::Draw => charts::draw_from_stdin(),
        }
    }
}
