//! `/proc/meminfo` and `/proc/vmstat`.

/// `MemAvailable` of `/proc/meminfo`, in KiB there.
pub fn available_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Pages swapped in since the machine started: `pswpin` of `/proc/vmstat`.
pub fn swapped_in_pages(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("pswpin "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_in_bytes() {
        let text = "MemTotal:       24000000 kB\nMemFree:         8890368 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(available_bytes(text), Some(20_480_000_000));
        assert_eq!(available_bytes("MemAvailable: 99999999999999999999 kB"), None);
        assert_eq!(available_bytes("MemAvailable: 18446744073709551615 kB"), None);
        // Kernels before 3.14 didn't say.
        assert_eq!(available_bytes("MemTotal:       24000000 kB\nMemFree:         8890368 kB\n"), None);
        assert_eq!(available_bytes(""), None);
    }

    #[test]
    fn swapping_in_is_a_count() {
        assert_eq!(swapped_in_pages("pgpgout 1\npswpin 42\npswpout 7\n"), Some(42));
        // A kernel without swap has no such line.
        assert_eq!(swapped_in_pages("pgpgout 1\n"), None);
        assert_eq!(swapped_in_pages("pswpin -1\n"), None);
    }
}
