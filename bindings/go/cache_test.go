// SPDX-License-Identifier: BSD-2-Clause

package kedge_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"kedge"
)

func TestTheSecondGetIsAHit(t *testing.T) {
	c := memoryCache(t)
	for name, b := range map[string][]byte{
		"heap":  make([]byte, 64*page),
		"alloc": buffer(t, 64*page).Bytes(),
		"part":  make([]byte, 64*page)[100 : 3*page],
	} {
		before := stats(t, c)
		r, err := c.Get(b)
		if err != nil {
			t.Fatal(name, err)
		}
		if r.Addr() != uintptr(unsafe.Pointer(&b[0])) || r.Len() != len(b) ||
			r.Offset() != uint64(r.Addr()) || r.Access()&kedge.LocalWrite == 0 {
			t.Errorf("%s: %#x %d %#x %d", name, r.Addr(), r.Len(), r.Offset(),
				r.Access())
		}
		handle := r.Handle()
		r.Put()
		r, err = c.Get(b)
		if err != nil {
			t.Fatal(name, err)
		}
		if r.Handle() != handle || r.Index() != uint32(handle) ||
			r.LKey() != uint32(handle) || r.RKey() != uint32(handle>>32) {
			t.Errorf("%s: another handle", name)
		}
		r.Put()
		if now := stats(t, c); now.Hits != before.Hits+1 {
			t.Errorf("%s: %d hits", name, now.Hits-before.Hits)
		}
	}
}

func TestPagesDroppedBySystemCallsAreRegisteredAnew(t *testing.T) {
	c := memoryCache(t)
	b := buffer(t, 16*page).Bytes()
	for i := 0; i < 20; i++ {
		b[0] = 1
		r, err := c.Get(b)
		if err != nil {
			t.Fatal(err)
		}
		r.Put()
		before := stats(t, c).Registrations
		drop(t, b)
		r, err = c.Get(b)
		if err != nil {
			t.Fatal(err)
		}
		r.Put()
		if stats(t, c).Registrations == before {
			t.Fatal("a registration of pages that had gone was served")
		}
	}
}

// An array that a goroutine's stack might hold is on the heap instead, as it would move
// with the stack.
func TestASliceOfALocalArrayDoesNotMove(t *testing.T) {
	c := memoryCache(t)
	var local [page]byte
	r, err := c.Get(local[:])
	if err != nil {
		t.Fatal(err)
	}
	deep(1000)
	if uintptr(unsafe.Pointer(&local[0])) != r.Addr() {
		t.Error("the array has moved")
	}
	r.Put()
}

//go:noinline
func deep(n int) int {
	var frame [1024]byte

	if n == 0 {
		return 0
	}
	frame[n%len(frame)] = byte(n)
	return deep(n-1) + int(frame[(n+1)%len(frame)])
}

func TestARegistrationKeepsItsMemory(t *testing.T) {
	c := memoryCache(t)
	freed := make(chan bool, 1)
	r := func() *kedge.Registration {
		b := new([64 * page]byte)
		runtime.SetFinalizer(b, func(*[64 * page]byte) { freed <- true })
		r, err := c.Get(b[:])
		if err != nil {
			t.Fatal(err)
		}
		return &r
	}()
	for i := 0; i < 3; i++ {
		runtime.GC()
	}
	select {
	case <-freed:
		t.Error("the memory was collected while it was registered")
	default:
	}
	r.Put()
	for i := 0; ; i++ {
		runtime.GC()
		select {
		case <-freed:
			return
		default:
			runtime.Gosched()
		}
	}
}

func TestPutOnAnotherThread(t *testing.T) {
	c := memoryCache(t)
	b := make([]byte, 4*page)
	for i := 0; i < 100; i++ {
		r, err := c.Get(b)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // and the thread ends with the goroutine
			r.Put()
			close(done)
		}()
		<-done
		if r.Held() {
			t.Fatal("it is held still")
		}
	}
}

func TestASecondPutDoesNothing(t *testing.T) {
	c := memoryCache(t)
	r, err := c.Get(make([]byte, page))
	if err != nil {
		t.Fatal(err)
	}
	r.Put()
	r.Put()
	defer func() {
		if recover() == nil {
			t.Error("a handle after the put")
		}
	}()
	r.Handle()
}

func TestCloseWhileARegistrationIsHeld(t *testing.T) {
	watching(t)
	c, err := kedge.OpenCache(kedge.Memory, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, page)
	r, err := c.Get(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Error(err)
	}
	r.Put()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, call := range []func() error{
		c.Close,
		func() error { _, err := c.Get(b); return err },
		func() error { _, err := c.GetV(b, kedge.LocalWrite); return err },
		func() error { _, err := c.Hint(b, kedge.LocalWrite); return err },
		func() error { _, err := c.Stats(); return err },
		func() error { _, err := c.Flush(); return err },
		func() error { _, err := c.Resync(); return err },
	} {
		if err := call(); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
}

// One goroutine closes while others get: each get succeeds or finds the cache closed. They
// end, as there may be a get under way at each try of a close.
func TestCloseBesideGets(t *testing.T) {
	watching(t)
	for round := 0; round < 20; round++ {
		var wg sync.WaitGroup

		c, err := kedge.OpenCache(kedge.Memory, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 4; i++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				b := make([]byte, page)
				for i := 0; i < 2000; i++ {
					r, err := c.Get(b)
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					r.Put()
				}
			}()
		}
		for {
			err := c.Close()
			if err == nil {
				break
			}
			if !errors.Is(err, syscall.EBUSY) {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		wg.Wait()
	}
}

func TestErrorsAreInWords(t *testing.T) {
	c := memoryCache(t)
	_, err := c.Get(nil)
	var e *kedge.Error
	if !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) || len(e.Reason) < 10 ||
		!strings.HasPrefix(err.Error(), "kedge: get: ") {
		t.Error(err)
	}
	_, err = c.GetAccess(make([]byte, page), 1<<31)
	if !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	_, err = c.GetPointer(unsafe.Pointer(&make([]byte, 1)[0]), -1, kedge.LocalRead)
	if !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	_, err = kedge.OpenCache(kedge.Memory, &kedge.CacheOptions{MaxRegions: 1 << 30})
	if !errors.Is(err, syscall.E2BIG) {
		t.Error(err)
	}
	if _, err = kedge.OpenCache(nil, nil); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	b := buffer(t, 4*page)
	gone := unsafe.Pointer(&b.Bytes()[0])
	b.Free()
	b.Free()
	if r, err := c.GetPointer(gone, page, kedge.LocalRead); err == nil {
		t.Log("the kernel has mapped something there again")
		r.Put()
	} else if !errors.Is(err, syscall.EFAULT) {
		t.Error(err)
	}
	if _, err := kedge.Alloc(0); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}

func TestARangeInPieces(t *testing.T) {
	watching(t)
	c := openCache(t, kedge.Memory, &kedge.CacheOptions{ChunkBytes: 4 * page})
	b := buffer(t, 1024*page).Bytes() // more pieces than a first try has room for
	regs, err := c.GetV(b, kedge.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	at := uintptr(unsafe.Pointer(&b[0]))
	for i := range regs {
		if regs[i].Addr() != at {
			t.Fatalf("piece %d: %#x is not %#x", i, regs[i].Addr(), at)
		}
		at += uintptr(regs[i].Len())
	}
	if at != uintptr(unsafe.Pointer(&b[0]))+uintptr(len(b)) || len(regs) < 256 {
		t.Errorf("%d pieces up to %#x", len(regs), at)
	}
	if err := c.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Error(err)
	}
	kedge.PutV(regs)
	if _, err := c.GetV(nil, kedge.LocalWrite); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}

func TestSharedMemoryOnTheProgramsWord(t *testing.T) {
	c := memoryCache(t)
	b, err := syscall.Mmap(-1, 0, 16*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(b)
	use := func() uint64 {
		before := stats(t, c).Hits
		r, err := c.Get(b)
		if err != nil {
			t.Fatal(err)
		}
		r.Put()
		return stats(t, c).Hits - before
	}
	if err := c.Vouch(b); err != nil {
		t.Fatal(err)
	}
	if use(); use() != 1 {
		t.Error("no hit in what was vouched for")
	}
	if err := c.Unvouch(b); err != nil {
		t.Fatal(err)
	}
	if err := c.Unvouch(b); !errors.Is(err, syscall.ENOENT) {
		t.Error(err)
	}
}

func TestHintFlushAndResync(t *testing.T) {
	c := memoryCache(t)
	b := buffer(t, 64*page).Bytes()
	if n, err := c.Hint(b, kedge.LocalWrite); err != nil || n != len(b) {
		t.Fatal(n, err)
	}
	before := stats(t, c).Hits
	r, err := c.Get(b[page : 2*page])
	if err != nil {
		t.Fatal(err)
	}
	r.Put()
	if stats(t, c).Hits != before+1 {
		t.Error("no hit in what was hinted at")
	}
	if n, err := c.Flush(); err != nil || n < 1 {
		t.Error(n, err)
	}
	if s := stats(t, c); s.Regions != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	if n, err := c.Resync(); err != nil || n != 0 {
		t.Error(n, err)
	}
}

func TestACacheThatIsLost(t *testing.T) {
	watching(t)
	d := &registrar{live: map[uint64]bool{}}
	dev, err := kedge.NewDevice(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		c, err := kedge.OpenCache(dev, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Get(make([]byte, page))
		if err != nil {
			t.Fatal(err)
		}
		r.Put()
	}()
	for {
		runtime.GC() // and its finalizers, by a goroutine of their own
		err := dev.Close()
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if len(d.live) != 0 {
		t.Error("something is registered still")
	}
}
