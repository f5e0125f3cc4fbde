//! The settings, as the server knows them.

use std::ffi::{CStr, c_int};
use std::ptr;

use super::pg_sys;

/// A value of a setting that is one of some words.
pub struct Word {
    /// How it is written.
    pub name: &'static CStr,
    /// What it is to the code.
    pub value: i32,
}

/// A setting: name, and what it is for.
pub struct Setting {
    /// With the prefix.
    pub name: &'static CStr,
    /// A sentence.
    pub description: &'static CStr,
}

/// Where the server keeps a setting's value. It alone writes it.
pub struct Value<T>(*mut T);

// SAFETY: the server has one thread, and values are written by it alone.
unsafe impl<T> Sync for Value<T> {}

impl<T: Copy> Value<T> {
    /// A value at that place, which must be a static variable.
    pub const fn at(place: *mut T) -> Self {
        Self(place)
    }

    /// What is set now.
    pub fn get(&self) -> T {
        // SAFETY: a static variable, see at().
        unsafe { *self.0 }
    }
}

/// Makes a static variable that a setting's value lives in, and the way to read it.
macro_rules! value {
    ($name:ident: $type:ty = $default:expr, $storage:ident) => {
        static mut $storage: $type = $default;
        /// What is set now.
        pub static $name: $crate::fence::settings::Value<$type> =
            $crate::fence::settings::Value::at(&raw mut $storage);
    };
}
pub(crate) use value;

/// Makes a setting known that is on or off. Superusers may change it.
pub fn define_switch(setting: &Setting, value: &Value<bool>) {
    // SAFETY: strings and value are static; called by _PG_init, with the value's default in it.
    unsafe {
        pg_sys::DefineCustomBoolVariable(
            setting.name.as_ptr(),
            setting.description.as_ptr(),
            ptr::null(),
            value.0,
            *value.0,
            pg_sys::GucContext::PGC_SUSET,
            0,
            None,
            None,
            None,
        );
    }
}

/// Makes a setting known that is one of some words. Superusers may change it.
pub fn define_choice(setting: &Setting, value: &Value<c_int>, words: &'static [Word]) {
    // The server reads the list until an entry without a name, and for as long as it runs.
    let mut options: Vec<pg_sys::config_enum_entry> = words
        .iter()
        .map(|word| pg_sys::config_enum_entry {
            name: word.name.as_ptr(),
            val: word.value,
            hidden: false,
        })
        .collect();
    options.push(pg_sys::config_enum_entry { name: ptr::null(), val: 0, hidden: false });
    // SAFETY: as above; the list is never freed.
    unsafe {
        pg_sys::DefineCustomEnumVariable(
            setting.name.as_ptr(),
            setting.description.as_ptr(),
            ptr::null(),
            value.0,
            *value.0,
            options.leak().as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            0,
            None,
            None,
            None,
        );
    }
}

/// Makes a setting known that is a time in minutes. Superusers may change it.
pub fn define_minutes(setting: &Setting, value: &Value<c_int>, least: c_int) {
    // SAFETY: as above.
    unsafe {
        pg_sys::DefineCustomIntVariable(
            setting.name.as_ptr(),
            setting.description.as_ptr(),
            ptr::null(),
            value.0,
            *value.0,
            least,
            c_int::MAX,
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GUC_UNIT_MIN as c_int,
            None,
            None,
            None,
        );
    }
}

/// Makes every other setting of that prefix an unknown one.
pub fn reserve_prefix(prefix: &CStr) {
    super::compat::reserve_setting_prefix(prefix);
}
