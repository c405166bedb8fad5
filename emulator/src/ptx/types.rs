//! Types of registers and instructions.

/// The interpretation of a type's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Predicate,
    Bits,
    Unsigned,
    Signed,
    Float,
}

/// A fundamental type of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ty {
    pub(crate) kind: Kind,
    /// Width in bits; 1 for a predicate.
    pub(crate) bits: u8,
}

impl Ty {
    pub(crate) const PREDICATE: Ty = Ty { kind: Kind::Predicate, bits: 1 };
    pub(crate) const U32: Ty = Ty { kind: Kind::Unsigned, bits: 32 };
    pub(crate) const U64: Ty = Ty { kind: Kind::Unsigned, bits: 64 };
    pub(crate) const B32: Ty = Ty { kind: Kind::Bits, bits: 32 };

    /// Parses a type name without its point, if the emulator knows the type.
    pub(crate) fn parse(name: &str) -> Option<Ty> {
        let (kind, bits) = match name {
            "pred" => return Some(Ty::PREDICATE),
            "f32" => return Some(Ty { kind: Kind::Float, bits: 32 }),
            "f64" => return Some(Ty { kind: Kind::Float, bits: 64 }),
            _ if name.starts_with('b') => (Kind::Bits, &name[1..]),
            _ if name.starts_with('u') => (Kind::Unsigned, &name[1..]),
            _ if name.starts_with('s') => (Kind::Signed, &name[1..]),
            _ => return None,
        };
        let bits = match bits {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        Some(Ty { kind, bits })
    }

    pub(crate) fn bytes(self) -> u32 {
        u32::from(self.bits) / 8
    }

    pub(crate) fn signed(self) -> bool {
        self.kind == Kind::Signed
    }

    /// Returns whether a register of this type may be an operand of an instruction of that type and the same
    /// width: bits match everything, and integers match integers.
    pub(crate) fn agrees(self, instruction: Ty) -> bool {
        use Kind::{Bits, Float, Predicate, Signed, Unsigned};
        match (self.kind, instruction.kind) {
            (Predicate, Predicate) => true,
            (Predicate, _) | (_, Predicate) => false,
            (Bits, _) | (_, Bits) | (Float, Float) => true,
            (Unsigned | Signed, Unsigned | Signed) => true,
            (Float, _) | (_, Float) => false,
        }
    }
}

/// An integer type for arithmetic. Untyped bits count as unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntTy {
    U16,
    U32,
    U64,
    S16,
    S32,
    S64,
}

impl IntTy {
    pub(crate) fn of(ty: Ty) -> Option<IntTy> {
        Some(match (ty.kind, ty.bits) {
            (Kind::Unsigned | Kind::Bits, 16) => IntTy::U16,
            (Kind::Unsigned | Kind::Bits, 32) => IntTy::U32,
            (Kind::Unsigned | Kind::Bits, 64) => IntTy::U64,
            (Kind::Signed, 16) => IntTy::S16,
            (Kind::Signed, 32) => IntTy::S32,
            (Kind::Signed, 64) => IntTy::S64,
            _ => return None,
        })
    }
}

/// A floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatTy {
    F32,
    F64,
}

impl FloatTy {
    pub(crate) fn of(ty: Ty) -> Option<FloatTy> {
        match (ty.kind, ty.bits) {
            (Kind::Float, 32) => Some(FloatTy::F32),
            (Kind::Float, 64) => Some(FloatTy::F64),
            _ => None,
        }
    }
}
