// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Access is what a registration allows; values are or'ed.
type Access uint32

// The local device may read whatever is registered.
const (
	LocalRead    Access = C.KEDGE_ACCESS_LOCAL_READ
	LocalWrite   Access = C.KEDGE_ACCESS_LOCAL_WRITE
	RemoteRead   Access = C.KEDGE_ACCESS_REMOTE_READ
	RemoteWrite  Access = C.KEDGE_ACCESS_REMOTE_WRITE
	RemoteAtomic Access = C.KEDGE_ACCESS_REMOTE_ATOMIC
)

// CacheOptions are limits of a cache; 0 is the default of each. See
// kedge_cache_open(3).
type CacheOptions struct {
	// Notifier tells of changes; nil is one that all such caches of the process
	// share. It stays open as long as the cache.
	Notifier *Notifier
	// MaxBytes and MaxRegions are how much is kept registered at most.
	MaxBytes, MaxRegions uint64
	// ChunkBytes is the piece in which Hint and GetV register.
	ChunkBytes uint64
	// MergeBytes is how large neighbours become that are registered as one.
	MergeBytes uint64
	// HintThreads is how many threads register for one Hint.
	HintThreads uint32
	// MaxFreedBytes is how much of it may be memory that free() has taken back.
	MaxFreedBytes uint64
	// TrustedPeers keeps registrations with remote access beyond their Put.
	TrustedPeers bool
	// Resync has a thread register anew whatever has changed, ahead of use.
	Resync bool
}

// Cache keeps registrations of a device, and serves none whose pages have gone. Any
// number of goroutines may use it.
type Cache struct {
	c        *C.struct_go_cache
	h        C.uintptr_t // the same, for calls that cost little
	device   Device
	notifier *Notifier
}

func cacheOptions(o *CacheOptions) C.struct_kedge_cache_opts {
	opts := C.struct_kedge_cache_opts{
		max_bytes:    C.uint64_t(o.MaxBytes),
		max_regions:  C.uint64_t(o.MaxRegions),
		chunk_bytes:  C.uint64_t(o.ChunkBytes),
		merge_bytes:  C.uint64_t(o.MergeBytes),
		hint_threads: C.uint32_t(o.HintThreads),

		max_freed_bytes: C.uint64_t(o.MaxFreedBytes),
	}
	if o.TrustedPeers {
		opts.flags |= C.KEDGE_CACHE_TRUSTED_PEERS
	}
	if o.Resync {
		opts.flags |= C.KEDGE_CACHE_RESYNC
	}
	return opts
}

// OpenCache opens a cache on a device; without options (nil) it has the defaults. The
// device stays open as long as the cache.
func OpenCache(device Device, options *CacheOptions) (*Cache, error) {
	const op = "open a cache"

	if device == nil {
		return nil, &Error{Op: op, Errno: syscall.EINVAL, Reason: "the device is nil"}
	}
	if options == nil {
		options = &CacheOptions{}
	}
	dev, err := device.Acquire()
	if err != nil {
		return nil, err
	}
	var nf *C.struct_kedge_notifier
	if options.Notifier != nil {
		if nf, err = options.Notifier.acquire(op); err != nil {
			device.Release()
			return nil, err
		}
	}
	o := C.go_cache_open((*C.struct_kedge_device)(dev), nf, cacheOptions(options))
	if o.rc != 0 {
		if nf != nil {
			options.Notifier.release()
		}
		device.Release()
		return nil, failure(op, "cache", C.int64_t(o.rc), o.why)
	}
	c := &Cache{o.c, C.uintptr_t(uintptr(unsafe.Pointer(o.c))), device,
		options.Notifier}
	runtime.SetFinalizer(c, (*Cache).finalize)
	return c, nil
}

// Close deregisters everything. It fails with EBUSY while a registration is held, or a
// call is under way, and may be tried again then.
func (c *Cache) Close() error {
	const op = "close a cache"

	rc := C.go_cache_close(c.c)
	if rc == -C.EBUSY {
		return inUse(op, "a registration is held, or a call is under way")
	}
	if rc != 0 {
		return closedError(op, "cache")
	}
	if c.notifier != nil {
		c.notifier.release()
	}
	c.device.Release()
	return nil
}

// finalize ends a cache that the program has lost. One with registrations that were
// never put stays for good, as a device may still write by them.
func (c *Cache) finalize() {
	if rc := C.go_cache_close(c.c); rc == -C.EBUSY {
		return
	} else if rc == 0 {
		if c.notifier != nil {
			c.notifier.release()
		}
		c.device.Release()
	}
	C.go_cache_free(c.c)
}

// Hint registers b ahead of its use, in chunks, and returns the bytes that are
// registered.
func (c *Cache) Hint(b []byte, access Access) (int, error) {
	n, err := counted("hint", "cache", C.go_cache_hint(c.c, first(b), C.size_t(len(b)),
		C.uint32_t(access)))
	runtime.KeepAlive(c)
	return n, err
}

// Vouch promises that the pages of b, which is shared memory, stay until Unvouch: so
// registrations of it are kept.
func (c *Cache) Vouch(b []byte) error {
	_, err := counted("vouch", "cache", C.go_cache_vouch(c.c, first(b), C.size_t(len(b))))
	runtime.KeepAlive(c)
	return err
}

// Unvouch ends the promise of Vouch, before the pages change.
func (c *Cache) Unvouch(b []byte) error {
	_, err := counted("unvouch", "cache", C.go_cache_unvouch(c.c, first(b), C.size_t(len(b))))
	runtime.KeepAlive(c)
	return err
}

// Resync registers anew what has changed since it was registered, and returns the bytes.
func (c *Cache) Resync() (int, error) {
	n, err := counted("resync", "cache", C.go_cache_resync(c.c))
	runtime.KeepAlive(c)
	return n, err
}

// Flush drops all registrations that are not held, and returns their number.
func (c *Cache) Flush() (int, error) {
	n, err := counted("flush", "cache", C.go_cache_flush(c.c))
	runtime.KeepAlive(c)
	return n, err
}

// CacheStats counts what a cache has done; kedge_cache_stats(3) describes the fields.
type CacheStats struct {
	Regions, Gets, Hits, Misses, Uncached uint64
	Merges, Invalidations                 uint64
	Registrations, Deregistrations        uint64
	Evictions, Resyncs, Bytes, BytesPeak  uint64
	RegisterTime                          time.Duration
	Failures, Lent, Resynced, Replaced    uint64
	Overputs, FreedBytes                  uint64
	DeregFailures, Stuck, Vouched         uint64
}

// Stats says what the cache has done since it was opened.
func (c *Cache) Stats() (CacheStats, error) {
	var s C.struct_kedge_cache_stats

	_, err := counted("stats", "cache", C.go_cache_stats(c.c, &s))
	runtime.KeepAlive(c)
	if err != nil {
		return CacheStats{}, err
	}
	return CacheStats{
		Regions: uint64(s.regions), Gets: uint64(s.gets), Hits: uint64(s.hits),
		Misses: uint64(s.misses), Uncached: uint64(s.uncached),
		Merges: uint64(s.merges), Invalidations: uint64(s.invalidations),
		Registrations:   uint64(s.registrations),
		Deregistrations: uint64(s.deregistrations),
		Evictions:       uint64(s.evictions), Resyncs: uint64(s.resyncs),
		Bytes: uint64(s.bytes), BytesPeak: uint64(s.bytes_peak),
		RegisterTime: time.Duration(s.register_ns),
		Failures:     uint64(s.failures), Lent: uint64(s.lent),
		Resynced: uint64(s.resynced), Replaced: uint64(s.replaced),
		Overputs: uint64(s.overputs), FreedBytes: uint64(s.freed_bytes),
		DeregFailures: uint64(s.dereg_failures), Stuck: uint64(s.stuck),
		Vouched: uint64(s.vouched),
	}, nil
}
