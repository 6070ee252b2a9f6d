//! Which instructions the kernels may use.

/// A family of code paths. Their results are the same bits: see the crate's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain Rust; runs everywhere.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F/BW/DQ/VL and VNNI.
    Avx512,
}

impl Level {
    /// All levels, slowest first.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    fn supported(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

/// Proof that this machine has the instructions of a [`Level`]: the only values are ones that were checked here, which
/// is what makes the kernels' entry points safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa(Level);

impl Isa {
    /// The best level of this machine. Ask once and keep the answer.
    pub fn detect() -> Isa {
        let best = Level::ALL.into_iter().rev().find(|level| level.supported());
        Isa(best.unwrap_or(Level::Portable))
    }

    /// A chosen level, or `None` where the machine lacks it.
    pub fn new(level: Level) -> Option<Isa> {
        level.supported().then_some(Isa(level))
    }

    /// The level that runs everywhere.
    pub const fn portable() -> Isa {
        Isa(Level::Portable)
    }

    /// Every level of this machine, slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        Level::ALL.into_iter().filter_map(Isa::new)
    }

    /// The level.
    pub const fn level(self) -> Level {
        self.0
    }
}

/// Defines `$name(isa, args…)`: one body compiled once for each level, so that the compiler vectorises it with that
/// level's registers. The body uses only operations whose result IEEE 754 fixes and the compiler keeps in order
/// (`mul_add` included), which is why the levels agree bit for bit.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? { $($body:tt)* }) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel's arguments are its shapes")]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            fn body($($arg: $ty),*) $(-> $ret)? { $($body)* }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            fn avx512($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            fn avx2($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }

            match isa.level() {
                // SAFETY: an `Isa` of this level exists only where its features were detected.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use multiversion;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_level_is_the_last_available() {
        assert_eq!(Isa::available().last(), Some(Isa::detect()));
        assert_eq!(Isa::available().next(), Some(Isa::portable()));
    }
}
