//! The passwords of ZooKeeper's sessions.

/// ZooKeeper's constant, which is public (`ZooKeeperServer.superSecret`).
const SECRET: i64 = 0xB341_5C00;
/// Multiplier, increment and state of `java.util.Random`.
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const STATE_MASK: u64 = (1 << 48) - 1;

/// The password of a session: ZooKeeper does not store it, and derives it from the id (`ZooKeeperServer.generatePasswd`).
#[must_use]
pub fn password(session: i64) -> [u8; 16] {
    let mut state = ((session ^ SECRET).cast_unsigned() ^ MULTIPLIER) & STATE_MASK;
    let mut password = [0; 16];
    for word in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & STATE_MASK;
        word.copy_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_as_zookeeper_derives_them() {
        for (session, expect) in [
            (1, 0x054c_c74a_3732_7db2_15e7_02e2_0c73_f005),
            (0x0100_019a_3b5c_0000, 0xe694_9843_7b3b_5b62_34a1_adff_bca3_5425),
            (0x0200_01d3_f0a1_0007, 0x9e13_f00e_6eed_81b6_2ba7_b2a6_02eb_e5ac_u128),
        ] {
            assert_eq!(u128::from_be_bytes(password(session)), expect, "{session:x}");
        }
    }
}
