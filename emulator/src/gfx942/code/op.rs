//! Operations: encoding form, opcode, name and operand types of each implemented one.

/// Encoding form in which an operation has an opcode of its own. A `Vop1`, `Vop2` or `Vopc` operation has a
/// `Vop3` encoding too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Scalar, one source.
    Sop1,
    /// Scalar, two sources.
    Sop2,
    /// Scalar comparison.
    Sopc,
    /// Scalar with 16 bits of immediate.
    Sopk,
    /// Program flow.
    Sopp,
    /// Scalar load.
    Smem,
    /// Vector, one source.
    Vop1,
    /// Vector, two sources.
    Vop2,
    /// Vector comparison.
    Vopc,
    /// Vector, up to three sources and modifiers, in eight bytes.
    Vop3,
    /// Local memory and moves between lanes.
    Ds,
    /// Global memory.
    Global,
}

/// Type of an operand: its width, its inline constants, and whether it takes sign modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// No operand.
    N,
    /// 16 bits.
    H,
    /// 32 bits.
    I,
    /// 64 bits.
    L,
    /// binary32.
    F,
    /// binary64.
    D,
    /// A mask of lanes, in scalar registers.
    M,
    /// 32 bits that take sign modifiers (`v_cndmask_b32`).
    S,
}

impl Ty {
    /// Returns the number of registers that it occupies.
    pub fn width(self) -> u8 {
        match self {
            Ty::N => 0,
            Ty::H | Ty::I | Ty::F | Ty::S => 1,
            Ty::L | Ty::D | Ty::M => 2,
        }
    }

    /// Returns whether `neg` and `abs` apply to it.
    pub fn signed(self) -> bool {
        matches!(self, Ty::F | Ty::D | Ty::S)
    }
}

/// The table's row for an operation.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The form in which its opcode is.
    pub form: Form,
    /// Its opcode in that form.
    pub opcode: u16,
    /// Its name without `_e32`, `_e64`, `_sdwa`, `_dpp`.
    pub name: &'static str,
    /// The type that it writes.
    pub dst: Ty,
    /// The types that it reads.
    pub src: [Ty; 3],
}

macro_rules! operations {
    ($($form:ident {
        $($code:literal $op:ident $name:literal $dst:ident $a:ident $b:ident $c:ident;)*
    })*) => {
        /// An operation. The names are the table's, in Rust spelling.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Op {
            $($($op,)*)*
            /// Every vector comparison: the instruction carries its opcode.
            VCmp,
            /// An instruction that cannot be run: the kernel says why.
            Refused,
        }

        /// Returns the operation with an opcode of a form, except comparisons.
        pub fn find(form: Form, opcode: u16) -> Option<Op> {
            match (form, opcode) {
                $($((Form::$form, $code) => Some(Op::$op),)*)*
                _ => None,
            }
        }

        impl Op {
            /// Returns its row of the table; a comparison has one per opcode, so it has none here.
            pub fn spec(self) -> Spec {
                match self {
                    $($(Op::$op => Spec {
                        form: Form::$form, opcode: $code, name: $name, dst: Ty::$dst,
                            src: [Ty::$a, Ty::$b, Ty::$c],
                    },)*)*
                    Op::VCmp => Spec { form: Form::Vopc, opcode: 0, name: "v_cmp", dst: Ty::M,
                        src: [Ty::N; 3] },
                    Op::Refused => Spec { form: Form::Sopp, opcode: 0, name: "?", dst: Ty::N,
                        src: [Ty::N; 3] },
                }
            }
        }

        /// All operations of the table.
        pub const ALL: &[Op] = &[$($(Op::$op,)*)*];
    };
}

operations! {
Sop2 {
    0 SAddU32 "s_add_u32" I I I N; 1 SSubU32 "s_sub_u32" I I I N; 2 SAddI32 "s_add_i32" I I I N;
    3 SSubI32 "s_sub_i32" I I I N;
    4 SAddcU32 "s_addc_u32" I I I N; 5 SSubbU32 "s_subb_u32" I I I N;
    6 SMinI32 "s_min_i32" I I I N; 7 SMinU32 "s_min_u32" I I I N; 8 SMaxI32 "s_max_i32" I I I N;
    9 SMaxU32 "s_max_u32" I I I N;
    10 SCselectB32 "s_cselect_b32" I I I N; 11 SCselectB64 "s_cselect_b64" L L L N;
    12 SAndB32 "s_and_b32" I I I N; 13 SAndB64 "s_and_b64" L L L N; 14 SOrB32 "s_or_b32" I I I N;
    15 SOrB64 "s_or_b64" L L L N;
    16 SXorB32 "s_xor_b32" I I I N; 17 SXorB64 "s_xor_b64" L L L N;
    18 SAndn2B32 "s_andn2_b32" I I I N; 19 SAndn2B64 "s_andn2_b64" L L L N;
    20 SOrn2B32 "s_orn2_b32" I I I N; 21 SOrn2B64 "s_orn2_b64" L L L N;
    22 SNandB32 "s_nand_b32" I I I N; 23 SNandB64 "s_nand_b64" L L L N; 24 SNorB32 "s_nor_b32" I I I N;
    25 SNorB64 "s_nor_b64" L L L N;
    26 SXnorB32 "s_xnor_b32" I I I N; 27 SXnorB64 "s_xnor_b64" L L L N;
    28 SLshlB32 "s_lshl_b32" I I I N; 29 SLshlB64 "s_lshl_b64" L L I N; 30 SLshrB32 "s_lshr_b32" I I I N;
    31 SLshrB64 "s_lshr_b64" L L I N;
    32 SAshrI32 "s_ashr_i32" I I I N; 33 SAshrI64 "s_ashr_i64" L L I N; 34 SBfmB32 "s_bfm_b32" I I I N;
    35 SBfmB64 "s_bfm_b64" L I I N;
    36 SMulI32 "s_mul_i32" I I I N; 37 SBfeU32 "s_bfe_u32" I I I N; 38 SBfeI32 "s_bfe_i32" I I I N;
    39 SBfeU64 "s_bfe_u64" L L I N; 40 SBfeI64 "s_bfe_i64" L L I N; 42 SAbsdiffI32 "s_absdiff_i32" I I I N;
    44 SMulHiU32 "s_mul_hi_u32" I I I N; 45 SMulHiI32 "s_mul_hi_i32" I I I N;
    46 SLshl1AddU32 "s_lshl1_add_u32" I I I N; 47 SLshl2AddU32 "s_lshl2_add_u32" I I I N;
    48 SLshl3AddU32 "s_lshl3_add_u32" I I I N; 49 SLshl4AddU32 "s_lshl4_add_u32" I I I N;
    50 SPackLl "s_pack_ll_b32_b16" I I I N; 51 SPackLh "s_pack_lh_b32_b16" I I I N;
    52 SPackHh "s_pack_hh_b32_b16" I I I N;
}
Sop1 {
    0 SMovB32 "s_mov_b32" I I N N; 1 SMovB64 "s_mov_b64" L L N N; 2 SCmovB32 "s_cmov_b32" I I N N;
    3 SCmovB64 "s_cmov_b64" L L N N;
    4 SNotB32 "s_not_b32" I I N N; 5 SNotB64 "s_not_b64" L L N N;
    8 SBrevB32 "s_brev_b32" I I N N; 9 SBrevB64 "s_brev_b64" L L N N;
    10 SBcnt0B32 "s_bcnt0_i32_b32" I I N N; 11 SBcnt0B64 "s_bcnt0_i32_b64" I L N N;
    12 SBcnt1B32 "s_bcnt1_i32_b32" I I N N; 13 SBcnt1B64 "s_bcnt1_i32_b64" I L N N;
    14 SFf0B32 "s_ff0_i32_b32" I I N N; 15 SFf0B64 "s_ff0_i32_b64" I L N N;
    16 SFf1B32 "s_ff1_i32_b32" I I N N; 17 SFf1B64 "s_ff1_i32_b64" I L N N;
    18 SFlbitB32 "s_flbit_i32_b32" I I N N; 19 SFlbitB64 "s_flbit_i32_b64" I L N N;
    20 SFlbitI32 "s_flbit_i32" I I N N; 21 SFlbitI64 "s_flbit_i32_i64" I L N N;
    22 SSextI8 "s_sext_i32_i8" I I N N; 23 SSextI16 "s_sext_i32_i16" I I N N;
    24 SBitset0B32 "s_bitset0_b32" I I N N; 25 SBitset0B64 "s_bitset0_b64" L I N N;
    26 SBitset1B32 "s_bitset1_b32" I I N N; 27 SBitset1B64 "s_bitset1_b64" L I N N;
    32 SAndSaveexec "s_and_saveexec_b64" L L N N; 33 SOrSaveexec "s_or_saveexec_b64" L L N N;
    34 SXorSaveexec "s_xor_saveexec_b64" L L N N; 35 SAndn2Saveexec "s_andn2_saveexec_b64" L L N N;
    36 SOrn2Saveexec "s_orn2_saveexec_b64" L L N N; 37 SNandSaveexec "s_nand_saveexec_b64" L L N N;
    38 SNorSaveexec "s_nor_saveexec_b64" L L N N; 39 SXnorSaveexec "s_xnor_saveexec_b64" L L N N;
    48 SAbsI32 "s_abs_i32" I I N N;
    51 SAndn1Saveexec "s_andn1_saveexec_b64" L L N N; 52 SOrn1Saveexec "s_orn1_saveexec_b64" L L N N;
    53 SAndn1Wrexec "s_andn1_wrexec_b64" L L N N; 54 SAndn2Wrexec "s_andn2_wrexec_b64" L L N N;
}
Sopc {
    0 SCmpEqI32 "s_cmp_eq_i32" N I I N; 1 SCmpLgI32 "s_cmp_lg_i32" N I I N;
    2 SCmpGtI32 "s_cmp_gt_i32" N I I N;
    3 SCmpGeI32 "s_cmp_ge_i32" N I I N; 4 SCmpLtI32 "s_cmp_lt_i32" N I I N;
    5 SCmpLeI32 "s_cmp_le_i32" N I I N;
    6 SCmpEqU32 "s_cmp_eq_u32" N I I N; 7 SCmpLgU32 "s_cmp_lg_u32" N I I N;
    8 SCmpGtU32 "s_cmp_gt_u32" N I I N;
    9 SCmpGeU32 "s_cmp_ge_u32" N I I N; 10 SCmpLtU32 "s_cmp_lt_u32" N I I N;
    11 SCmpLeU32 "s_cmp_le_u32" N I I N;
    12 SBitcmp0B32 "s_bitcmp0_b32" N I I N; 13 SBitcmp1B32 "s_bitcmp1_b32" N I I N;
    14 SBitcmp0B64 "s_bitcmp0_b64" N L I N; 15 SBitcmp1B64 "s_bitcmp1_b64" N L I N;
    18 SCmpEqU64 "s_cmp_eq_u64" N L L N; 19 SCmpLgU64 "s_cmp_lg_u64" N L L N;
}
Sopk {
    0 SMovkI32 "s_movk_i32" I N N N; 1 SCmovkI32 "s_cmovk_i32" I N N N;
    2 SCmpkEqI32 "s_cmpk_eq_i32" I N N N; 3 SCmpkLgI32 "s_cmpk_lg_i32" I N N N;
    4 SCmpkGtI32 "s_cmpk_gt_i32" I N N N;
    5 SCmpkGeI32 "s_cmpk_ge_i32" I N N N; 6 SCmpkLtI32 "s_cmpk_lt_i32" I N N N;
    7 SCmpkLeI32 "s_cmpk_le_i32" I N N N;
    8 SCmpkEqU32 "s_cmpk_eq_u32" I N N N; 9 SCmpkLgU32 "s_cmpk_lg_u32" I N N N;
    10 SCmpkGtU32 "s_cmpk_gt_u32" I N N N;
    11 SCmpkGeU32 "s_cmpk_ge_u32" I N N N; 12 SCmpkLtU32 "s_cmpk_lt_u32" I N N N;
    13 SCmpkLeU32 "s_cmpk_le_u32" I N N N;
    14 SAddkI32 "s_addk_i32" I N N N; 15 SMulkI32 "s_mulk_i32" I N N N;
}
Sopp {
    0 SNop "s_nop" N N N N; 1 SEndpgm "s_endpgm" N N N N; 2 SBranch "s_branch" N N N N;
    4 SCbranchScc0 "s_cbranch_scc0" N N N N; 5 SCbranchScc1 "s_cbranch_scc1" N N N N;
    6 SCbranchVccz "s_cbranch_vccz" N N N N; 7 SCbranchVccnz "s_cbranch_vccnz" N N N N;
    8 SCbranchExecz "s_cbranch_execz" N N N N; 9 SCbranchExecnz "s_cbranch_execnz" N N N N;
    10 SBarrier "s_barrier" N N N N; 12 SWaitcnt "s_waitcnt" N N N N; 14 SSleep "s_sleep" N N N N;
    15 SSetprio "s_setprio" N N N N;
}
Smem {
    0 SLoadX1 "s_load_dword" N N N N; 1 SLoadX2 "s_load_dwordx2" N N N N; 2 SLoadX4 "s_load_dwordx4" N N N N;
    3 SLoadX8 "s_load_dwordx8" N N N N; 4 SLoadX16 "s_load_dwordx16" N N N N;
}
Vop1 {
    0 VNop "v_nop" N N N N; 1 VMovB32 "v_mov_b32" I I N N; 2 VReadfirstlane "v_readfirstlane_b32" I I N N;
    3 VCvtI32F64 "v_cvt_i32_f64" I D N N; 4 VCvtF64I32 "v_cvt_f64_i32" D I N N;
    5 VCvtF32I32 "v_cvt_f32_i32" F I N N;
    6 VCvtF32U32 "v_cvt_f32_u32" F I N N; 7 VCvtU32F32 "v_cvt_u32_f32" I F N N;
    8 VCvtI32F32 "v_cvt_i32_f32" I F N N;
    15 VCvtF32F64 "v_cvt_f32_f64" F D N N; 16 VCvtF64F32 "v_cvt_f64_f32" D F N N;
    17 VCvtF32Ubyte0 "v_cvt_f32_ubyte0" F I N N; 18 VCvtF32Ubyte1 "v_cvt_f32_ubyte1" F I N N;
    19 VCvtF32Ubyte2 "v_cvt_f32_ubyte2" F I N N; 20 VCvtF32Ubyte3 "v_cvt_f32_ubyte3" F I N N;
    21 VCvtU32F64 "v_cvt_u32_f64" I D N N; 22 VCvtF64U32 "v_cvt_f64_u32" D I N N;
    23 VTruncF64 "v_trunc_f64" D D N N; 24 VCeilF64 "v_ceil_f64" D D N N; 25 VRndneF64 "v_rndne_f64" D D N N;
    26 VFloorF64 "v_floor_f64" D D N N;
    28 VTruncF32 "v_trunc_f32" F F N N; 29 VCeilF32 "v_ceil_f32" F F N N; 30 VRndneF32 "v_rndne_f32" F F N N;
    31 VFloorF32 "v_floor_f32" F F N N;
    34 VRcpF32 "v_rcp_f32" F F N N; 36 VRsqF32 "v_rsq_f32" F F N N; 37 VRcpF64 "v_rcp_f64" D D N N;
    38 VRsqF64 "v_rsq_f64" D D N N;
    39 VSqrtF32 "v_sqrt_f32" F F N N; 40 VSqrtF64 "v_sqrt_f64" D D N N;
    43 VNotB32 "v_not_b32" I I N N; 44 VBfrevB32 "v_bfrev_b32" I I N N; 45 VFfbhU32 "v_ffbh_u32" I I N N;
    46 VFfblB32 "v_ffbl_b32" I I N N; 47 VFfbhI32 "v_ffbh_i32" I I N N;
    48 VFrexpExpF64 "v_frexp_exp_i32_f64" I D N N; 49 VFrexpMantF64 "v_frexp_mant_f64" D D N N;
    51 VFrexpExpF32 "v_frexp_exp_i32_f32" I F N N; 52 VFrexpMantF32 "v_frexp_mant_f32" F F N N;
    56 VMovB64 "v_mov_b64" L L N N;
}
Vop2 {
    0 VCndmask "v_cndmask_b32" I S S M;
    1 VAddF32 "v_add_f32" F F F N; 2 VSubF32 "v_sub_f32" F F F N; 3 VSubrevF32 "v_subrev_f32" F F F N;
    4 VFmacF64 "v_fmac_f64" D D D N;
    5 VMulF32 "v_mul_f32" F F F N; 6 VMulI24 "v_mul_i32_i24" I I I N; 7 VMulHiI24 "v_mul_hi_i32_i24" I I I N;
    8 VMulU24 "v_mul_u32_u24" I I I N; 9 VMulHiU24 "v_mul_hi_u32_u24" I I I N;
    10 VMinF32 "v_min_f32" F F F N; 11 VMaxF32 "v_max_f32" F F F N;
    12 VMinI32 "v_min_i32" I I I N; 13 VMaxI32 "v_max_i32" I I I N; 14 VMinU32 "v_min_u32" I I I N;
    15 VMaxU32 "v_max_u32" I I I N;
    16 VLshrrevB32 "v_lshrrev_b32" I I I N; 17 VAshrrevI32 "v_ashrrev_i32" I I I N;
    18 VLshlrevB32 "v_lshlrev_b32" I I I N;
    19 VAndB32 "v_and_b32" I I I N; 20 VOrB32 "v_or_b32" I I I N; 21 VXorB32 "v_xor_b32" I I I N;
    23 VFmamk "v_fmamk_f32" F F F F; 24 VFmaak "v_fmaak_f32" F F F F;
    25 VAddCo "v_add_co_u32" I I I N; 26 VSubCo "v_sub_co_u32" I I I N;
    27 VSubrevCo "v_subrev_co_u32" I I I N;
    28 VAddcCo "v_addc_co_u32" I I I M; 29 VSubbCo "v_subb_co_u32" I I I M;
    30 VSubbrevCo "v_subbrev_co_u32" I I I M;
    38 VAddU16 "v_add_u16" H H H N; 39 VSubU16 "v_sub_u16" H H H N; 40 VSubrevU16 "v_subrev_u16" H H H N;
    41 VMulLoU16 "v_mul_lo_u16" H H H N;
    42 VLshlrevB16 "v_lshlrev_b16" H H H N; 43 VLshrrevB16 "v_lshrrev_b16" H H H N;
    44 VAshrrevI16 "v_ashrrev_i16" H H H N;
    47 VMaxU16 "v_max_u16" H H H N; 48 VMaxI16 "v_max_i16" H H H N; 49 VMinU16 "v_min_u16" H H H N;
    50 VMinI16 "v_min_i16" H H H N;
    52 VAddU32 "v_add_u32" I I I N; 53 VSubU32 "v_sub_u32" I I I N; 54 VSubrevU32 "v_subrev_u32" I I I N;
    59 VFmacF32 "v_fmac_f32" F F F N; 61 VXnorB32 "v_xnor_b32" I I I N;
}
Vop3 {
    450 VMadI24 "v_mad_i32_i24" I I I I; 451 VMadU24 "v_mad_u32_u24" I I I I;
    456 VBfeU32 "v_bfe_u32" I I I I; 457 VBfeI32 "v_bfe_i32" I I I I; 458 VBfiB32 "v_bfi_b32" I I I I;
    459 VFmaF32 "v_fma_f32" F F F F; 460 VFmaF64 "v_fma_f64" D D D D;
    462 VAlignbit "v_alignbit_b32" I I I I; 463 VAlignbyte "v_alignbyte_b32" I I I I;
    464 VMin3F32 "v_min3_f32" F F F F; 465 VMin3I32 "v_min3_i32" I I I I; 466 VMin3U32 "v_min3_u32" I I I I;
    467 VMax3F32 "v_max3_f32" F F F F; 468 VMax3I32 "v_max3_i32" I I I I; 469 VMax3U32 "v_max3_u32" I I I I;
    470 VMed3F32 "v_med3_f32" F F F F; 471 VMed3I32 "v_med3_i32" I I I I; 472 VMed3U32 "v_med3_u32" I I I I;
    478 VDivFixupF32 "v_div_fixup_f32" F F F F; 479 VDivFixupF64 "v_div_fixup_f64" D D D D;
    480 VDivScaleF32 "v_div_scale_f32" F F F F; 481 VDivScaleF64 "v_div_scale_f64" D D D D;
    482 VDivFmasF32 "v_div_fmas_f32" F F F F; 483 VDivFmasF64 "v_div_fmas_f64" D D D D;
    488 VMadU64U32 "v_mad_u64_u32" L I I L; 489 VMadI64I32 "v_mad_i64_i32" L I I L;
    493 VPermB32 "v_perm_b32" I I I I; 499 VXadU32 "v_xad_u32" I I I I;
    509 VLshlAddU32 "v_lshl_add_u32" I I I I; 510 VAddLshlU32 "v_add_lshl_u32" I I I I;
    511 VAdd3U32 "v_add3_u32" I I I I;
    512 VLshlOrB32 "v_lshl_or_b32" I I I I; 513 VAndOrB32 "v_and_or_b32" I I I I;
    514 VOr3B32 "v_or3_b32" I I I I;
    520 VLshlAddU64 "v_lshl_add_u64" L L I L;
    640 VAddF64 "v_add_f64" D D D N; 641 VMulF64 "v_mul_f64" D D D N; 642 VMinF64 "v_min_f64" D D D N;
    643 VMaxF64 "v_max_f64" D D D N;
    644 VLdexpF64 "v_ldexp_f64" D D I N; 645 VMulLoU32 "v_mul_lo_u32" I I I N;
    646 VMulHiU32 "v_mul_hi_u32" I I I N; 647 VMulHiI32 "v_mul_hi_i32" I I I N;
    648 VLdexpF32 "v_ldexp_f32" F F I N; 649 VReadlane "v_readlane_b32" I I I N;
    650 VWritelane "v_writelane_b32" I I I N;
    651 VBcnt "v_bcnt_u32_b32" I I I N; 652 VMbcntLo "v_mbcnt_lo_u32_b32" I I I N;
    653 VMbcntHi "v_mbcnt_hi_u32_b32" I I I N;
    655 VLshlrevB64 "v_lshlrev_b64" L I L N; 656 VLshrrevB64 "v_lshrrev_b64" L I L N;
    657 VAshrrevI64 "v_ashrrev_i64" L I L N;
    659 VBfmB32 "v_bfm_b32" I I I N; 668 VAddI32 "v_add_i32" I I I N; 669 VSubI32 "v_sub_i32" I I I N;
}
Ds {
    62 DsPermute "ds_permute_b32" I I I N; 63 DsBpermute "ds_bpermute_b32" I I I N;
}
Global {
    16 GLoadU8 "global_load_ubyte" N N N N; 17 GLoadI8 "global_load_sbyte" N N N N;
    18 GLoadU16 "global_load_ushort" N N N N; 19 GLoadI16 "global_load_sshort" N N N N;
    20 GLoadX1 "global_load_dword" N N N N; 21 GLoadX2 "global_load_dwordx2" N N N N;
    22 GLoadX3 "global_load_dwordx3" N N N N; 23 GLoadX4 "global_load_dwordx4" N N N N;
    24 GStoreX8 "global_store_byte" N N N N; 26 GStoreX16 "global_store_short" N N N N;
    27 GStoreHi16 "global_store_short_d16_hi" N N N N;
    28 GStoreX1 "global_store_dword" N N N N;
    29 GStoreX2 "global_store_dwordx2" N N N N; 30 GStoreX3 "global_store_dwordx3" N N N N;
    31 GStoreX4 "global_store_dwordx4" N N N N;
}
}
