//! `/proc/cpuinfo` of a guest, made from the CPUID that the guest sees. No library finds a feature
//! there whose instructions it cannot use.
//!
//! Names are Linux's (`arch/x86/include/asm/cpufeatures.h`), in the order of its words, of those
//! features that are bits of CPUID. Features that Linux derives itself (`constant_tsc`, `rep_good`,
//! `cpuid` and the like) are left out.

use std::fmt::Write as _;

use kvm_bindings::kvm_cpuid_entry2;

use super::hypervisor::Hypervisor;

/// A register of CPUID.
#[derive(Clone, Copy)]
enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

/// A leaf, its sub-leaf, a register, and the names of the register's bits from the lowest on; `-`
/// for none.
type Word = (u32, u32, Register, &'static str);

const WORDS: [Word; 8] = [
    (
        1,
        0,
        Register::Edx,
        "fpu vme de pse tsc msr pae mce cx8 apic - sep mtrr pge mca cmov pat pse36 pn clflush - dts acpi mmx fxsr sse sse2 ss \
         ht tm ia64 pbe",
    ),
    (
        0x8000_0001,
        0,
        Register::Edx,
        "- - - - - - - - - - - syscall - - - - - - - mp nx - mmxext - - fxsr_opt pdpe1gb rdtscp - lm 3dnowext 3dnow",
    ),
    (
        1,
        0,
        Register::Ecx,
        "pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 cid sdbg fma cx16 xtpr pdcm - pcid dca sse4_1 sse4_2 \
         x2apic movbe popcnt tsc_deadline_timer aes xsave - avx f16c rdrand hypervisor",
    ),
    (
        0x8000_0001,
        0,
        Register::Ecx,
        "lahf_lm cmp_legacy svm extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw ibs xop skinit wdt - lwp fma4 tce \
         - nodeid_msr - tbm topoext perfctr_core perfctr_nb - bpext ptsc perfctr_llc mwaitx - -",
    ),
    (
        7,
        0,
        Register::Ebx,
        "fsgsbase tsc_adjust sgx bmi1 hle avx2 - smep bmi2 erms invpcid rtm cqm - mpx rdt_a avx512f avx512dq rdseed adx smap \
         avx512ifma - clflushopt clwb intel_pt avx512pf avx512er avx512cd sha_ni avx512bw avx512vl",
    ),
    (0xd, 1, Register::Eax, "xsaveopt xsavec xgetbv1 xsaves xfd"),
    (
        7,
        1,
        Register::Eax,
        "sha512 sm3 sm4 - avx_vnni avx512_bf16 lass cmpccxadd - - fzrm fsrs fsrc - - - - fred lkgs wrmsrns - amx_fp16 - avx_ifma",
    ),
    (
        7,
        0,
        Register::Ecx,
        "- avx512vbmi umip pku ospke waitpkg avx512_vbmi2 - gfni vaes vpclmulqdq avx512_vnni avx512_bitalg - avx512_vpopcntdq \
         - la57 - - - - - rdpid - bus_lock_detect cldemote - movdiri movdir64b enqcmd sgx_lc",
    ),
];
/// The word that Linux shows last.
const LAST: Word = (
    7,
    0,
    Register::Edx,
    "- - avx512_4vnniw avx512_4fmaps fsrm uintr - - avx512_vp2intersect - md_clear - - - serialize - tsxldtrk - pconfig \
     arch_lbr ibt - amx_bf16 avx512_fp16 amx_tile amx_int8 - - flush_l1d arch_capabilities - -",
);
/// Bits that an operating system sets in CPUID and the monitor does not: protection keys stay off.
const OFF: [&str; 2] = ["pku", "ospke"];

impl Hypervisor {
    /// The text of `/proc/cpuinfo` for guests.
    #[must_use]
    pub fn cpuinfo(&self) -> String {
        let kilohertz = self.ticks().ok().map(|ticks| ticks.kilohertz);
        cpuinfo(self.cpuid.as_slice(), kilohertz)
    }
}

/// The text for these leaves; `kilohertz` is the counter's speed, where it is known.
fn cpuinfo(leaves: &[kvm_cpuid_entry2], kilohertz: Option<u32>) -> String {
    let leaf = |function, index| {
        leaves.iter().find(|leaf| (leaf.function, leaf.index) == (function, index))
    };
    let first = leaf(1, 0).map_or(0, |leaf| leaf.eax);
    let (mut family, mut model) = (first >> 8 & 0xf, first >> 4 & 0xf);
    if matches!(family, 6 | 15) {
        model |= first >> 12 & 0xf0;
    }
    if family == 15 {
        family += first >> 20 & 0xff;
    }
    let top = leaf(0, 0);
    let vendor = top.map_or(Vec::new(), |top| {
        [top.ebx, top.edx, top.ecx].into_iter().flat_map(u32::to_le_bytes).collect()
    });
    let name = (0x8000_0002..=0x8000_0004_u32).filter_map(|function| leaf(function, 0));
    let name: Vec<u8> = name
        .flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx])
        .flat_map(u32::to_le_bytes)
        .take_while(|byte| *byte != 0)
        .collect();
    let flush = leaf(1, 0).map_or(64, |leaf| (leaf.ebx >> 8 & 0xff) * 8);
    let sizes =
        leaf(0x8000_0008, 0).map_or((36, 48), |leaf| (leaf.eax & 0xff, leaf.eax >> 8 & 0xff));
    // The second-level cache, leaf 0x80000006, in kilobytes. Intel's and AMD's agree on it.
    let cache = leaf(0x8000_0006, 0).map_or(0, |leaf| leaf.ecx >> 16);
    let mut text = format!(
        "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {}\nstepping\t: {}\n",
        String::from_utf8_lossy(&vendor),
        String::from_utf8_lossy(&name).trim(),
        first & 0xf,
    );
    if let Some(kilohertz) = kilohertz {
        let _ = writeln!(text, "cpu MHz\t\t: {}.{:03}", kilohertz / 1000, kilohertz % 1000);
    }
    if cache > 0 {
        let _ = writeln!(text, "cache size\t: {cache} KB");
    }
    let _ = write!(
        text,
        "physical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\napicid\t\t: 0\ninitial apicid\t: 0\nfpu\t\t: yes\n\
         fpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\nflags\t\t: {}\nbugs\t\t:\n",
        top.map_or(0, |top| top.eax),
        flags(leaf).join(" "),
    );
    if let Some(kilohertz) = kilohertz {
        let hundredths = kilohertz / 5;
        let _ = writeln!(text, "bogomips\t: {}.{:02}", hundredths / 100, hundredths % 100);
    }
    let (physical, linear) = sizes;
    let _ = write!(
        text,
        "clflush size\t: {flush}\ncache_alignment\t: {flush}\naddress sizes\t: {physical} bits physical, {linear} bits virtual\n\
         power management:\n\n"
    );
    text
}

/// Names of the features that the guest has.
fn flags<'a>(leaf: impl Fn(u32, u32) -> Option<&'a kvm_cpuid_entry2>) -> Vec<&'static str> {
    let mut all = Vec::new();
    for (function, index, register, names) in WORDS.into_iter().chain([LAST]) {
        let Some(leaf) = leaf(function, index) else { continue };
        let bits = match register {
            Register::Eax => leaf.eax,
            Register::Ebx => leaf.ebx,
            Register::Ecx => leaf.ecx,
            Register::Edx => leaf.edx,
        };
        let is_set = |(bit, _): &(u32, &str)| bits >> bit & 1 == 1;
        let set = (0..).zip(names.split_whitespace()).filter(is_set).map(|(_, name)| name);
        all.extend(set.filter(|name| *name != "-" && !OFF.contains(name) && !is_tile(name)));
    }
    all
}

/// Whether a feature is one of AMX, whose state guests do not have.
fn is_tile(name: &str) -> bool {
    name.starts_with("amx_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(function: u32, index: u32, registers: [u32; 4]) -> kvm_cpuid_entry2 {
        let [eax, ebx, ecx, edx] = registers;
        kvm_cpuid_entry2 { function, index, eax, ebx, ecx, edx, ..Default::default() }
    }

    #[test]
    fn each_word_has_at_most_a_name_for_each_bit() {
        for (function, index, _, names) in WORDS.into_iter().chain([LAST]) {
            let count = names.split_whitespace().count();
            assert!(count <= 32, "{function:x}.{index}: {count}");
        }
    }

    #[test]
    fn cpuinfo_has_the_model_and_the_features_that_the_guest_is_told() {
        let text = u32::from_le_bytes;
        let leaves = [
            leaf(0, 0, [16, text(*b"Auth"), text(*b"cAMD"), text(*b"enti")]),
            // Family 25, model 17, stepping 1; AVX, FMA; SSE2.
            leaf(1, 0, [0x00a1_0f11, 8 << 8, 1 << 28 | 1 << 12, 1 << 26]),
            leaf(7, 0, [1, 1 << 5 | 1 << 16, 1 << 3, 1 << 24]),
            leaf(0x8000_0002, 0, [text(*b"A ma"), text(*b"chin"), text(*b"e\0\0\0"), 0]),
        ];
        let text = cpuinfo(&leaves, Some(2_445_406));
        for line in [
            "vendor_id\t: AuthenticAMD",
            "cpu family\t: 25",
            "model\t\t: 17",
            "model name\t: A machine",
            "stepping\t: 1",
            "cpu MHz\t\t: 2445.406",
            // No protection keys, and no tiles.
            "flags\t\t: sse2 fma avx avx2 avx512f",
            "clflush size\t: 64",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
    }
}
