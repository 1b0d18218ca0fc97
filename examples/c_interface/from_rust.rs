// SPDX-License-Identifier: Apache-2.0

//! A pool from Rust: the functions of rmm/c/rmm.h, and types that keep their rules. No crate is needed.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::fmt;
use std::ptr;
use std::rc::Rc;

/// The interface, as the header has it.
mod ffi {
    use super::*;

    pub const OK: c_int = 0;
    pub const CURRENT_DEVICE: c_int = -1;

    #[repr(C)]
    pub struct Resource {
        _private: [u8; 0],
    }

    #[link(name = "rmm_c")]
    extern "C" {
        pub fn rmm_c_resource_create(text: *const c_char, device: c_int, resource: *mut *mut Resource) -> c_int;
        pub fn rmm_c_resource_destroy(resource: *mut Resource) -> c_int;
        pub fn rmm_c_resource_allocate(
            resource: *mut Resource,
            bytes: usize,
            alignment: usize,
            stream: *mut c_void,
            block: *mut *mut c_void,
        ) -> c_int;
        pub fn rmm_c_resource_deallocate(
            resource: *mut Resource,
            block: *mut c_void,
            bytes: usize,
            alignment: usize,
            stream: *mut c_void,
        );
        pub fn rmm_c_last_failure_text() -> *const c_char;
    }
}

/// A failed call: its status and its message.
#[derive(Debug)]
pub struct Error {
    pub status: c_int,
    pub text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} (status {})", self.text, self.status)
    }
}

impl std::error::Error for Error {}

fn check(status: c_int) -> Result<(), Error> {
    if status == ffi::OK {
        return Ok(());
    }
    // The text belongs to this thread, and is valid until the thread's next failure.
    let text = unsafe { CStr::from_ptr(ffi::rmm_c_last_failure_text()) };
    Err(Error { status, text: text.to_string_lossy().into_owned() })
}

/// The C handle. It is destroyed when the Resource and all of its blocks are gone.
struct Handle(*mut ffi::Resource);

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { ffi::rmm_c_resource_destroy(self.0) };
    }
}

pub struct Resource(Rc<Handle>);

/// A block of memory that keeps its resource open. Order all work that uses it on its stream.
pub struct Block {
    resource: Rc<Handle>,
    address: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
}

impl Resource {
    /// Makes the resource of a configuration such as "pool,max=80%", on the current device.
    pub fn new(configuration: &str) -> Result<Resource, Error> {
        let text = CString::new(configuration).map_err(|wrong| Error { status: -1, text: wrong.to_string() })?;
        let mut made = ptr::null_mut();
        check(unsafe { ffi::rmm_c_resource_create(text.as_ptr(), ffi::CURRENT_DEVICE, &mut made) })?;
        Ok(Resource(Rc::new(Handle(made))))
    }

    /// Allocates for work on `stream`, a cudaStream_t. Null is the default stream.
    pub fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<Block, Error> {
        let mut address = ptr::null_mut();
        check(unsafe { ffi::rmm_c_resource_allocate(self.0 .0, bytes, 0, stream, &mut address) })?;
        Ok(Block { resource: Rc::clone(&self.0), address, bytes, stream })
    }
}

impl Block {
    pub fn address(&self) -> *mut c_void {
        self.address
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        unsafe { ffi::rmm_c_resource_deallocate(self.resource.0, self.address, self.bytes, 0, self.stream) };
    }
}

fn main() -> Result<(), Error> {
    let pool = Resource::new("pool,max=1MiB")?;
    let block = pool.allocate(1000, ptr::null_mut())?;
    assert_eq!(block.address() as usize % 256, 0);
    let failure = pool.allocate(2 << 20, ptr::null_mut()).err().expect("the limit was not kept");
    println!("{}", failure.text.lines().next().unwrap_or(""));
    drop(pool); // `block` keeps the pool's memory alive
    Ok(())
}
