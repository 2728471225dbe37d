//! Core Graphics: displays.

/// Displays that are asked for; more say nothing new.
const MOST: usize = 16;

#[expect(unsafe_code, reason = "Core Graphics is C")]
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {
    // <CoreGraphics/CGDirectDisplay.h>: CGDirectDisplayID is uint32_t, CGError int32_t, boolean_t int.
    fn CGGetOnlineDisplayList(max_displays: u32, online_displays: *mut u32, display_count: *mut u32) -> i32;
    fn CGDisplayIsAsleep(display: u32) -> libc::boolean_t;
}

/// Whether each display that is connected sleeps; none where there is no window server to ask. Displays that sleep stay in the list of
/// online ones, while the main one may become another (AprilNEA/OpenLogi issue 1283).
#[expect(unsafe_code, reason = "Core Graphics is C")]
pub(crate) fn displays_asleep() -> Vec<bool> {
    let mut displays = [0; MOST];
    let mut count = 0;
    // SAFETY: `CGError CGGetOnlineDisplayList(uint32_t, CGDirectDisplayID *, uint32_t *)` writes at most as many numbers as the first
    // argument says, which `displays` has, and one count.
    let failed = unsafe { CGGetOnlineDisplayList(MOST as u32, displays.as_mut_ptr(), &raw mut count) };
    let count = if failed == 0 { usize::try_from(count).unwrap_or(MOST).min(MOST) } else { 0 };
    // SAFETY: `boolean_t CGDisplayIsAsleep(CGDirectDisplayID)` takes any number.
    displays[..count].iter().map(|display| unsafe { CGDisplayIsAsleep(*display) } != 0).collect()
}
