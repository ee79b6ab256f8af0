//! The counts that the fuzz targets return.

counts! {
    /// The effects of an input, so that a campaign can show that it got somewhere.
    Tally:
    /// Records decoded, paths and ACLs found good, requests answered without error.
    accepted,
    /// The contrary.
    refused,
    /// Watch events received.
    events,
    /// Connections that the server ended.
    closed,
}
