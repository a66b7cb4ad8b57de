//! The macros `probe!` and `span!`, and their expansions.
//!
//! An expansion lies in another crate, so that its `unsafe` (one `asm!`) is allowed within it:
//! `#![deny(unsafe_code)]` accepts the allowance, `#![forbid(unsafe_code)]` does not.

/// Defines a probe site that records an event with up to two integers, if the site is on.
///
/// ```
/// # use handover_probe::probe;
/// # let (bytes_count, peer) = (17, 3u8);
/// probe!("net.accepted");
/// probe!("net.read", bytes_count);
/// probe!("net.wrote", bytes_count, peer);
/// ```
///
/// The name is a constant expression of type `&str`, by convention `mechanism.stage`. Values are
/// [`Value`](crate::Value)s, and their expressions are evaluated only while the site is on.
///
/// # Cost
/// Off: one instruction that does nothing. On: a time stamp and a store (see the crate's page).
#[macro_export]
macro_rules! probe {
    ($name:expr $(,)?) => {{
        $crate::__meta!($name, $crate::__private::KIND_MARK, 0);
        $crate::__site!({ $crate::__private::record(&__HANDOVER_META) });
    }};
    ($name:expr, $first:expr $(,)?) => {{
        $crate::__meta!($name, $crate::__private::KIND_MARK, 1);
        $crate::__site!({
            $crate::__private::record_1(&__HANDOVER_META, $crate::Value::to_word($first))
        });
    }};
    ($name:expr, $first:expr, $second:expr $(,)?) => {{
        $crate::__meta!($name, $crate::__private::KIND_MARK, 2);
        $crate::__site!({
            $crate::__private::record_2(
                &__HANDOVER_META,
                $crate::Value::to_word($first),
                $crate::Value::to_word($second),
            )
        });
    }};
}

/// Defines a probe site with one integer for a hot function that calls nothing else. If the site is
/// on, evaluates `$result` and returns it from the enclosing function. `$result` should be a call
/// of a function that is never inlined, with `$record` as an argument, a closure that records an
/// event with its argument.
///
/// The code after a [`probe!`] needs values that were computed before it, and the function saves
/// registers for them at its start, whether the site is on or not. With this macro it saves none.
///
/// ```
/// # use handover_probe::probe_and_return;
/// fn push(queue: &mut Vec<u64>, number: u64) {
///     probe_and_return!("queue.pushed", |record| push_recorded(queue, number, record));
///     queue.push(number);
/// }
///
/// #[cold]
/// #[inline(never)]
/// fn push_recorded(queue: &mut Vec<u64>, number: u64, record: impl FnOnce(u64)) {
///     record(number);
///     queue.push(number);
/// }
/// # let mut queue = Vec::new();
/// # push(&mut queue, 3);
/// # assert_eq!(queue, [3]);
/// ```
///
/// # Cost
/// Off: one instruction that does nothing. On: as [`probe!`], and a call.
#[macro_export]
macro_rules! probe_and_return {
    ($name:expr, |$record:ident| $result:expr $(,)?) => {{
        $crate::__meta!($name, $crate::__private::KIND_MARK, 1);
        $crate::__site!({
            let $record = |value: u64| $crate::__private::record_1(&__HANDOVER_META, value);
            return $result;
        });
    }};
}

/// Defines a probe site that records an event now, and another when the returned guard is dropped,
/// also by unwinding.
///
/// ```
/// # use handover_probe::span;
/// fn serve(request: u64) {
///     let _span = span!("serve", request); // up to two values, recorded on entry
///     // ...
/// } // left here
/// # serve(1);
/// ```
///
/// Both ends are sites of their own, so that the guard has no size and checks nothing itself. A
/// span that is switched on or off while it runs leaves one end without the other; readers allow
/// for it.
///
/// # Cost
/// Off: two instructions that do nothing. On: two time stamps and two stores.
#[macro_export]
macro_rules! span {
    ($name:expr $(,)?) => {
        $crate::__span!($name, 0, { $crate::__private::record(&__HANDOVER_META) })
    };
    ($name:expr, $first:expr $(,)?) => {
        $crate::__span!($name, 1, {
            $crate::__private::record_1(&__HANDOVER_META, $crate::Value::to_word($first))
        })
    };
    ($name:expr, $first:expr, $second:expr $(,)?) => {
        $crate::__span!($name, 2, {
            $crate::__private::record_2(
                &__HANDOVER_META,
                $crate::Value::to_word($first),
                $crate::Value::to_word($second),
            )
        })
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __span {
    ($name:expr, $values_count:expr, $enter:block) => {{
        $crate::__meta!($name, $crate::__private::KIND_SPAN, $values_count);
        #[must_use = "a span lasts as long as its guard: let _span = span!(..)"]
        struct __HandoverSpan;
        impl ::core::ops::Drop for __HandoverSpan {
            #[inline(always)]
            fn drop(&mut self) {
                $crate::__site!({ $crate::__private::record_leave(&__HANDOVER_META) });
            }
        }
        $crate::__site!($enter);
        __HandoverSpan
    }};
}

/// Defines the data of a probe site: name and position without pointers, so that loading needs no
/// relocation.
#[doc(hidden)]
#[macro_export]
macro_rules! __meta {
    ($name:expr, $kind:expr, $values_count:expr) => {
        const __HANDOVER_NAME: &str = $name;
        const __HANDOVER_FILE: &str = ::core::file!();
        static __HANDOVER_META: $crate::__private::SiteData<
            [u8; __HANDOVER_NAME.len() + __HANDOVER_FILE.len()],
        > = $crate::__private::SiteData::<[u8; __HANDOVER_NAME.len() + __HANDOVER_FILE.len()]>::new(
            __HANDOVER_NAME,
            __HANDOVER_FILE,
            ::core::line!(),
            $kind,
            $values_count,
        );
    };
}

/// Emits the instruction of a probe site, `nop`, and its entry in the section, with the address to
/// which a `b` in its place jumps.
#[cfg(all(target_arch = "aarch64", not(any(miri, handover_loom, feature = "flags"))))]
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($on:block) => {
        #[allow(unsafe_code)]
        // SAFETY: `nop` does nothing; patched to a jump, it goes to the block of the `label`
        // operand.
        unsafe {
            ::core::arch::asm!(
                "2: nop",
                ".pushsection handover_probes,\"aR\",@progbits",
                ".balign 4",
                ".long 2b - .",
                ".long {meta} - .",
                ".long {on} - .",
                ".popsection",
                on = label $on,
                meta = sym __HANDOVER_META,
                options(nomem, nostack, preserves_flags),
            );
        }
    };
}

/// Emits the instruction of a probe site and its entry in the section. `test eax, imm32` has the
/// distance of a `jmp rel32` as its immediate value: five bytes, of which the first selects one.
#[cfg(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags"))))]
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($on:block) => {
        #[allow(unsafe_code)]
        // SAFETY: `test` reads a register and writes the flags, which asm! assumes to be clobbered;
        // patched to a jump, it goes to the block of the `label` operand.
        unsafe {
            ::core::arch::asm!(
                "2:",
                ".byte 0xa9",
                ".long {on} - (. + 4)",
                ".pushsection handover_probes,\"aR\",@progbits",
                ".balign 4",
                ".long 2b - .",
                ".long {meta} - .",
                ".popsection",
                on = label $on,
                meta = sym __HANDOVER_META,
                options(nomem, nostack),
            );
        }
    };
}

/// Reads the site's flag in memory, on targets without patched code.
#[cfg(not(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
)))]
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($on:block) => {
        if $crate::__private::is_on(&__HANDOVER_META) $on
    };
}
