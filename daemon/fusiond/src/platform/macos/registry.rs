//! The I/O registry: devices and their properties.

use std::ffi::CStr;

use objc2_core_foundation::{
    CFBoolean, CFData, CFDictionary, CFNumber, CFRetained, CFString, CFType, ConcreteType,
};
use objc2_io_kit::{
    IOObjectRelease, IORegistryEntryCreateCFProperty, IOServiceGetMatchingService, IOServiceMatching,
    io_service_t,
};

use crate::sensors::decode::darwin::Property;

/// `MACH_PORT_NULL`, which `kIOMainPortDefault` is too (<IOKit/IOKitLib.h>).
const NULL: libc::mach_port_t = 0;
/// Dictionaries within dictionaries that are copied.
const DEEPEST: usize = 3;

/// A device. Looked up once and kept: a walk through the registry is what makes monitors expensive.
#[derive(Debug)]
pub(crate) struct RegistryEntry(io_service_t);

impl RegistryEntry {
    /// The first device of a class, or of one derived from it; `None` if there is none.
    #[expect(unsafe_code, reason = "IOKit is C")]
    pub(crate) fn of_class(class: &CStr) -> Option<Self> {
        // SAFETY: `CFMutableDictionaryRef IOServiceMatching(const char *name)` of <IOKit/IOKitLib.h> reads `class` up to its zero.
        let matching = unsafe { IOServiceMatching(class.as_ptr()) }?;
        let matching: &CFDictionary = &matching;
        // SAFETY: `io_service_t IOServiceGetMatchingService(mach_port_t, CFDictionaryRef)` of the same header takes over one reference to
        // the dictionary, which the new `CFRetained` is.
        let service = unsafe { IOServiceGetMatchingService(NULL, Some(retained(matching))) };
        (service != NULL).then_some(Self(service))
    }

    /// A property as it is now, copied; `None` if the device hasn't got it.
    #[expect(unsafe_code, reason = "IOKit is C")]
    pub(crate) fn property(&self, name: &'static str) -> Option<Property> {
        let key = CFString::from_static_str(name);
        // SAFETY: `CFTypeRef IORegistryEntryCreateCFProperty(io_registry_entry_t, CFStringRef, CFAllocatorRef, IOOptionBits)` of
        // <IOKit/IOKitLib.h>; the entry is held by `self`, the default allocator is NULL, no options are defined.
        let value = unsafe { IORegistryEntryCreateCFProperty(self.0, Some(&key), None, 0) }?;
        Some(copied(&value, DEEPEST))
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        IOObjectRelease(self.0);
    }
}

fn retained<Object: ConcreteType>(object: &Object) -> CFRetained<Object> {
    object.retain()
}

/// Copies a value out of Core Foundation.
fn copied(value: &CFType, depth: usize) -> Property {
    if let Some(number) = value.downcast_ref::<CFNumber>() {
        return number.as_i64().map_or(Property::Other, Property::Number);
    }
    if let Some(text) = value.downcast_ref::<CFString>() {
        return Property::Text(text.to_string());
    }
    if let Some(flag) = value.downcast_ref::<CFBoolean>() {
        return Property::Flag(flag.as_bool());
    }
    if let Some(data) = value.downcast_ref::<CFData>() {
        return Property::Bytes(data.to_vec());
    }
    match value.downcast_ref::<CFDictionary>() {
        Some(map) if depth > 0 => Property::Map(entries(map, depth - 1)),
        _ => Property::Other,
    }
}

#[expect(unsafe_code, reason = "what a dictionary holds isn't in its type")]
fn entries(map: &CFDictionary, depth: usize) -> Vec<(String, Property)> {
    // SAFETY: a property of the registry is a property list (IORegistryEntryCreateCFProperty: "CF container"), so that keys and values are
    // objects of Core Foundation.
    let map: &CFDictionary<CFType, CFType> = unsafe { map.cast_unchecked() };
    let (keys, values) = map.to_vecs();
    let named = keys.iter().zip(&values).filter_map(|(key, value)| {
        let name = key.downcast_ref::<CFString>()?.to_string();
        Some((name, copied(value, depth)))
    });
    named.collect()
}
