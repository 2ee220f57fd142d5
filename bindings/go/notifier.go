// SPDX-License-Identifier: BSD-2-Clause

package kedge

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Level is what a notifier promises.
type Level uint32

// See kedge_notifier_open(3) for what each level promises.
const (
	LevelDefault  Level = C.KEDGE_LEVEL_DEFAULT
	LevelNone     Level = C.KEDGE_LEVEL_NONE
	LevelAdvisory Level = C.KEDGE_LEVEL_ADVISORY
	LevelOrdered  Level = C.KEDGE_LEVEL_ORDERED
	LevelExact    Level = C.KEDGE_LEVEL_EXACT
)

// NotifierOptions say how to watch; 0 is the default of each.
type NotifierOptions struct {
	// Backend is "auto", "ummunot", "uffd", "hooks" or "none"; empty is what
	// KEDGE_NOTIFIER in the environment says, else "auto". Go's runtime makes its
	// own system calls, of which "hooks" sees none.
	Backend string
	// MinLevel is the least that will do.
	MinLevel Level
	// Spin is how long the notifier's thread looks for the next event before it
	// sleeps; a negative time is not at all.
	Spin time.Duration
	// NoBlindSpot, ExactRanges and Ask are KEDGE_NOTIFIER_NO_BLIND_SPOT and so on.
	NoBlindSpot, ExactRanges, Ask bool
}

// Notifier watches ranges of the process's address space. Any number of goroutines may
// use it.
type Notifier struct {
	n *C.struct_go_notifier
}

// OpenNotifier opens a notifier; nil are the default options.
func OpenNotifier(options *NotifierOptions) (*Notifier, error) {
	var backend *C.char

	if options == nil {
		options = &NotifierOptions{}
	}
	if options.Backend != "" {
		backend = C.CString(options.Backend)
		defer C.free(unsafe.Pointer(backend))
	}
	flags := C.uint32_t(0)
	if options.NoBlindSpot {
		flags |= C.KEDGE_NOTIFIER_NO_BLIND_SPOT
	}
	if options.ExactRanges {
		flags |= C.KEDGE_NOTIFIER_EXACT_RANGES
	}
	if options.Ask {
		flags |= C.KEDGE_NOTIFIER_ASK
	}
	spin := C.uint32_t(options.Spin.Microseconds())
	if options.Spin < 0 {
		spin = C.UINT32_MAX
	}
	o := C.go_notifier_open(backend, flags, C.uint32_t(options.MinLevel), spin)
	if o.rc != 0 {
		return nil, failure("open a notifier", "notifier", C.int64_t(o.rc), o.why)
	}
	n := &Notifier{o.n}
	runtime.SetFinalizer(n, (*Notifier).finalize)
	return n, nil
}

// acquire is for caches.
func (n *Notifier) acquire(op string) (*C.struct_kedge_notifier, error) {
	if C.go_use_begin(&n.n.uses) != 0 {
		return nil, closedError(op, "notifier")
	}
	return n.n.nf, nil
}

func (n *Notifier) release() {
	C.go_use_end(&n.n.uses)
	runtime.KeepAlive(n)
}

// Close stops watching. It fails with EBUSY while a cache, an Events, or a call of
// another goroutine uses the notifier.
func (n *Notifier) Close() error {
	const op = "close a notifier"

	rc := C.go_notifier_close(n.n)
	runtime.KeepAlive(n)
	if rc == -C.EBUSY {
		return inUse(op, "a cache or a call under way uses the notifier")
	}
	if rc != 0 {
		return closedError(op, "notifier")
	}
	return nil
}

func (n *Notifier) finalize() {
	if C.go_notifier_close(n.n) != -C.EBUSY {
		C.go_notifier_free(n.n)
	}
}

// Watch watches the pages that hold b; cookie names the watch. If it returns true, what
// is registered there now must not be kept. A watch does not keep the memory from the
// garbage collector: it is there to see pages go.
func (n *Notifier) Watch(b []byte, cookie uint64) (provisional bool, err error) {
	a := C.go_notifier_watch(n.n, first(b), C.size_t(len(b)), C.uint64_t(cookie))
	runtime.KeepAlive(n)
	runtime.KeepAlive(b)
	rc, err := counted("watch", "notifier", a)
	return rc == C.KEDGE_WATCH_PROVISIONAL, err
}

// Unwatch ends a watch.
func (n *Notifier) Unwatch(cookie uint64) error {
	_, err := counted("unwatch", "notifier",
		C.go_notifier_unwatch(n.n, C.uint64_t(cookie)))
	runtime.KeepAlive(n)
	return err
}

// Generation is a counter: while it is that of an EventLast, nothing that was watched
// then has changed. Two loads; it is not to be called after Close, nor beside it.
func (n *Notifier) Generation() uint64 {
	head := (*C.struct_kedge_notifier_head)(unsafe.Pointer(n.n.nf))
	g := atomic.LoadUint64((*uint64)(head.generation)) +
		atomic.LoadUint64((*uint64)(head.trips))
	runtime.KeepAlive(n)
	return g
}

// Unchanged tells whether nothing that is watched has changed since a generation, true
// to the notifier's level. It asks the kernel where the generation alone does not tell.
func (n *Notifier) Unchanged(generation uint64) (bool, error) {
	rc, err := counted("unchanged", "notifier",
		C.go_notifier_unchanged(n.n, C.uint64_t(generation)))
	runtime.KeepAlive(n)
	return rc == 1, err
}

// NotifierInfo is what a notifier is; struct kedge_notifier_info has the fields.
type NotifierInfo struct {
	Backend                string
	Level                  Level
	Blind, Check           uint32
	Hooked                 bool
	Watches, Armed, Events uint64
}

// Info says what the notifier is and how much it watches.
func (n *Notifier) Info() (NotifierInfo, error) {
	var i C.struct_kedge_notifier_info

	_, err := counted("info", "notifier", C.go_notifier_info(n.n, &i))
	runtime.KeepAlive(n)
	if err != nil {
		return NotifierInfo{}, err
	}
	return NotifierInfo{Backend: C.GoString(i.backend), Level: Level(i.level),
		Blind: uint32(i.blind), Check: uint32(i.check), Hooked: i.hooked != 0,
		Watches: uint64(i.watches), Armed: uint64(i.armed), Events: uint64(i.events),
	}, nil
}

// EventKind says what happened to a watched range.
type EventKind uint32

// See enum kedge_event_kind.
const (
	EventLast   EventKind = C.KEDGE_EVENT_LAST
	EventUnmap  EventKind = C.KEDGE_EVENT_UNMAP
	EventRemove EventKind = C.KEDGE_EVENT_REMOVE
	EventRemap  EventKind = C.KEDGE_EVENT_REMAP
	EventOther  EventKind = C.KEDGE_EVENT_OTHER
)

func (k EventKind) String() string {
	names := [...]string{"last", "unmap", "remove", "remap", "other"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Event is what happened to one watch since it was last read: [Start, End) has changed.
type Event struct {
	Kind       EventKind
	Unsure     bool // a part of it is no more than possible
	Start, End uintptr
	Cookie     uint64
	Generation uint64
}

// Read takes what happened, and never waits. The last event is an EventLast where there
// are no more.
func (n *Notifier) Read() ([]Event, error) {
	var buf [64]C.struct_kedge_event

	a := C.go_notifier_read(n.n, &buf[0], C.size_t(len(buf)))
	runtime.KeepAlive(n)
	cnt, err := counted("read", "notifier", a)
	if err != nil {
		return nil, err
	}
	events := make([]Event, cnt)
	for i := range events {
		e := &buf[i]
		events[i] = Event{EventKind(e.kind), e.flags&C.KEDGE_EVENT_UNSURE != 0,
			uintptr(e.start), uintptr(e.end), uint64(e.cookie),
			uint64(e.generation)}
	}
	return events, nil
}

// Fd is a descriptor that is readable while events wait; the notifier keeps it.
func (n *Notifier) Fd() (int, error) {
	fd, err := counted("fd", "notifier", C.go_notifier_fd(n.n))
	runtime.KeepAlive(n)
	return fd, err
}

// Some backends' descriptors may stay silent where caches share the notifier.
const eventsAtLeast = 500 * time.Millisecond

// Events returns a channel of what happens to watches, without the EventLast of each
// read. It is closed when ctx is done; an error that ended it before is reported by err,
// once the channel is closed.
func (n *Notifier) Events(ctx context.Context) (events <-chan Event, err func() error) {
	var failed error

	ch := make(chan Event)
	go func() {
		defer close(ch)
		failed = n.feed(ctx, ch)
	}()
	return ch, func() error { return failed }
}

func (n *Notifier) feed(ctx context.Context, ch chan<- Event) error {
	if _, err := n.acquire("events"); err != nil {
		return err
	}
	defer n.release()
	fd, err := n.Fd()
	if err != nil {
		return err
	}
	w, err := newWaiter(fd)
	if err != nil {
		return err
	}
	defer w.close()
	for ctx.Err() == nil {
		events, err := n.Read()
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Kind == EventLast {
				continue
			}
			select {
			case ch <- e:
			case <-ctx.Done():
				return nil
			}
		}
		if len(events) == 0 || events[len(events)-1].Kind == EventLast {
			w.wait(ctx, eventsAtLeast)
		}
	}
	return nil
}
