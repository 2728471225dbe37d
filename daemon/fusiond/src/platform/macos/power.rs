//! IOPS: power sources.

use objc2_io_kit::{IOPSCopyPowerSourcesInfo, IOPSGetProvidingPowerSourceType};

/// The name of what provides power now; `None` if the system doesn't say. Asks another process (powerd).
#[expect(unsafe_code, reason = "IOKit is C")]
pub(crate) fn providing_power_source() -> Option<String> {
    let snapshot = IOPSCopyPowerSourcesInfo()?;
    // SAFETY: `CFStringRef IOPSGetProvidingPowerSourceType(CFTypeRef snapshot)` of <IOKit/ps/IOPowerSources.h> wants what
    // `IOPSCopyPowerSourcesInfo` returned.
    let name = unsafe { IOPSGetProvidingPowerSourceType(Some(&snapshot)) }?;
    Some(name.to_string())
}
