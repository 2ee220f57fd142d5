// SPDX-License-Identifier: BSD-2-Clause

// Changes of memory by Go's runtime, beside a device that pins pages: its scavenger and
// debug.FreeOSMemory() drop pages of the heap by system calls that no C library sees, and
// stacks are memory of the same heap. Bytes that the device wrote are compared with those
// that the program sees. Counted are gets, not seconds.

package kedge_test

import (
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kedge"
	"kedge/uring"
)

// rig is what the goroutines of a test share.
type rig struct {
	t     *testing.T
	ring  *uring.Ring
	cache *kedge.Cache
	file  *os.File
	reads int64
	stale int64
}

func newRig(t *testing.T) *rig {
	watching(t)
	ring := openRing(t)
	return &rig{t: t, ring: ring, cache: openCache(t, ring, nil), file: patternFile(t)}
}

// transfer has the ring read into b; false if the bytes did not arrive where b is now.
func (r *rig) transfer(b []byte, reg *kedge.Registration, at int) bool {
	for i := 0; i < len(b); i += page {
		b[i] = ^pattern(at + i)
	}
	n, err := r.ring.ReadAt(r.file.Fd(), reg, int64(at))
	if err != nil || n != len(b) {
		r.t.Error(n, err)
		return true
	}
	atomic.AddInt64(&r.reads, 1)
	for i := 0; i < len(b); i += page {
		if b[i] != pattern(at+i) {
			return false
		}
	}
	return true
}

func (r *rig) use(b []byte, read bool, at int) {
	reg, err := r.cache.Get(b)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer reg.Put()
	if read && !r.transfer(b, &reg, at) {
		atomic.AddInt64(&r.stale, 1)
	}
}

// source gives buffers to use: fresh ones now and then, of a kind.
type source interface {
	replace(rnd *rand.Rand, b []byte) []byte
}

type heap struct{}

func (heap) replace(rnd *rand.Rand, b []byte) []byte {
	b = make([]byte, 32<<10+rnd.Intn(480<<10))
	for i := 0; i < len(b); i += page {
		b[i] = 1
	}
	return b
}

// mapped are buffers of Alloc, which stay: that is what they are for.
type mapped struct{ t *testing.T }

func (m mapped) replace(rnd *rand.Rand, b []byte) []byte {
	if b == nil {
		b = buffer(m.t, 32<<10+rnd.Intn(480<<10)).Bytes()
	}
	return b
}

const (
	workers = 3
	hold    = 6
)

// buffers are those that each goroutine begins with.
func buffers(s source) [][][]byte {
	rnd := rand.New(rand.NewSource(7))
	all := make([][][]byte, workers)

	for i := range all {
		for len(all[i]) < hold {
			all[i] = append(all[i], s.replace(rnd, nil))
		}
	}
	return all
}

// garbage is what a program leaves behind it: small objects, and a stack that grows.
func garbage(rnd *rand.Rand) {
	var some [][]byte

	for i := 0; i < 8; i++ {
		some = append(some, make([]byte, 1+rnd.Intn(16<<10)))
	}
	done := make(chan int)
	go func() { done <- deep(1+rnd.Intn(100)) + len(some) }()
	<-done
}

// work has each goroutine get so often, and returns what that added to the statistics.
func (r *rig) work(all [][][]byte, s source, gets int, seed int64) kedge.CacheStats {
	var wg sync.WaitGroup

	before := stats(r.t, r.cache)
	for w := range all {
		wg.Add(1)
		go func(bufs [][]byte, rnd *rand.Rand) {
			defer wg.Done()
			for i := 0; i < gets; i++ {
				at := rnd.Intn(len(bufs))
				if rnd.Intn(8) == 0 {
					bufs[at] = s.replace(rnd, bufs[at])
					garbage(rnd)
				}
				r.use(bufs[at], rnd.Intn(8) == 0, rnd.Intn(page))
			}
		}(all[w], rand.New(rand.NewSource(seed+int64(w))))
	}
	wg.Wait()
	now := stats(r.t, r.cache)
	return kedge.CacheStats{Gets: now.Gets - before.Gets, Hits: now.Hits - before.Hits,
		Uncached:      now.Uncached - before.Uncached,
		Invalidations: now.Invalidations - before.Invalidations}
}

func report(t *testing.T, what string, s kedge.CacheStats) float64 {
	share := 100 * float64(s.Uncached) / float64(s.Gets)
	t.Logf("%s: %d gets, %d hits, %d invalidations, %d not kept (%.2f %%)", what, s.Gets,
		s.Hits, s.Invalidations, s.Uncached, share)
	return share
}

func (r *rig) close() {
	r.t.Logf("%d reads, %d stale", r.reads, r.stale)
	if r.stale != 0 || r.reads == 0 {
		r.t.Errorf("%d of %d reads did not arrive where the program looks", r.stale,
			r.reads)
	}
}

// dropUntil has the runtime drop all free pages, and shrink stacks, again and again.
func dropUntil(stop <-chan struct{}, drops *int64, over *sync.WaitGroup) {
	defer over.Done()
	for {
		select {
		case <-stop:
			return
		default:
			debug.FreeOSMemory()
			atomic.AddInt64(drops, 1)
		}
	}
}

// The test of tests: a registration that is held while its pages are dropped is what a
// cache would serve that does not see it, and transfer() finds it.
func TestATransferToPagesThatHaveGoneIsFound(t *testing.T) {
	r := newRig(t)
	b := buffer(t, 64*page).Bytes()
	b[0] = 1
	reg, err := r.cache.Get(b)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Put()
	if !r.transfer(b, &reg, 0) {
		t.Error("the bytes have not arrived")
	}
	drop(t, b)
	if r.transfer(b, &reg, 0) {
		t.Error("the bytes have arrived on pages that had gone")
	}
}

// Pages of the heap are dropped without a pause: no read may miss the program's pages.
func TestTheHeapWhileItsPagesAreDropped(t *testing.T) {
	var over sync.WaitGroup
	var drops int64

	r := newRig(t)
	all := buffers(heap{})
	stop := make(chan struct{})
	over.Add(1)
	go dropUntil(stop, &drops, &over)
	s := r.work(all, heap{}, 1000, 1)
	for i := int64(2); atomic.LoadInt64(&drops) < 5; i++ {
		s = r.work(all, heap{}, 50, 100*i)
	}
	close(stop)
	over.Wait()
	t.Log(drops, "drops")
	report(t, "while pages are dropped", s)
	r.close()
}

// A collection after each few allocations, with the scavenger at its work.
func underPressure(t *testing.T, s source) {
	const most, tries = 10.0, 50

	r := newRig(t)
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	all := buffers(s)
	r.work(all, s, 50, 1) // first registrations
	debug.FreeOSMemory()
	share := 100.0
	// A machine may be so slow that a drop is still under way at each get.
	for i := 1; i <= tries && share > most; i++ {
		share = report(t, "under pressure", r.work(all, s, 400, int64(1000*i)))
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d collections, %d KiB released by the runtime now", m.NumGC,
		m.HeapReleased>>10)
	if share > most {
		t.Errorf("%.1f %% of the gets were not kept, %.0f %% is the most", share, most)
	}
	r.close()
}

func TestTheHeapUnderPressure(t *testing.T) { underPressure(t, heap{}) }

func TestBuffersUnderPressure(t *testing.T) { underPressure(t, mapped{t}) }

// Once drops are over, what is in use is kept again: the first get of each buffer, a
// moment after the last drop.
func TestTheHeapAfterADrop(t *testing.T) {
	const most, tries = 10.0, 50

	r := newRig(t)
	all := buffers(heap{})
	r.work(all, heap{}, 100, 1)
	share := 100.0
	for i := 0; i < tries && share > most; i++ {
		debug.FreeOSMemory()
		time.Sleep(10 * time.Millisecond) // a hint: the next try has another
		before := stats(t, r.cache)
		for _, bufs := range all {
			for _, b := range bufs {
				r.use(b, true, 0)
			}
		}
		now := stats(t, r.cache)
		share = report(t, "after a drop", kedge.CacheStats{Gets: now.Gets - before.Gets,
			Hits: now.Hits - before.Hits, Uncached: now.Uncached - before.Uncached})
	}
	if share > most {
		t.Errorf("%.1f %% of the gets were not kept", share)
	}
	r.close()
}
