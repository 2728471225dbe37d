//! Messages of the kernel about devices, on its `NETLINK_KOBJECT_UEVENT` socket.
//!
//! ```text
//! change@/devices/LNXSYSTM:00/.../power_supply/AC\0ACTION=change\0DEVPATH=...\0SUBSYSTEM=power_supply\0POWER_SUPPLY_ONLINE=0\0...
//! ```

/// Subsystems whose changes may be changes of the conditions.
const SUBSYSTEMS: [&[u8]; 2] = [b"SUBSYSTEM=power_supply", b"SUBSYSTEM=thermal"];

/// Whether a message is about a power supply or about heat.
pub fn concerns_conditions(message: &[u8]) -> bool {
    message.split(|byte| *byte == 0).any(|field| SUBSYSTEMS.contains(&field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_power_and_heat_concern_the_conditions() {
        let message = |subsystem: &str| {
            format!(
                "change@/devices/x\0ACTION=change\0DEVPATH=/devices/x\0SUBSYSTEM={subsystem}\0SEQNUM=4711\0"
            )
        };
        assert!(concerns_conditions(message("power_supply").as_bytes()));
        assert!(concerns_conditions(message("thermal").as_bytes()));
        assert!(!concerns_conditions(message("block").as_bytes()));
        assert!(!concerns_conditions(message("power_supply_of_somebody").as_bytes()));
        assert!(!concerns_conditions(b""));
        // udev's own messages begin otherwise and are not asked for.
        assert!(!concerns_conditions(b"libudev\0\xfe\xed\xca\xfe"));
    }
}
