// SPDX-License-Identifier: BSD-2-Clause

// A Go program whose transfers use buffers from Go's own heap. The runtime gives
// pages back by raw madvise() that no C library sees: by its scavenger, and at
// once by debug.FreeOSMemory(), which -drop calls at that interval.
//
// Several goroutines get, now and then read a file by READ_FIXED and compare, put,
// and replace buffers, while others may only compute. Counted are gets, not
// seconds: a slow machine does no less. The share of gets whose registration could
// not be kept is judged while nothing but the runtime's scavenger drops pages; with
// -drop after a phase with drops, at first by one get of each buffer, 10 ms after
// the last drop. With -tries both are tried until the share is small enough, for
// machines on which 10 ms are no time.
//
// Exit status: 0, 1 where the bound is missed or a buffer was stale, 77 where it
// cannot run.
package main

/*
#include "ring.h"
*/
import "C"

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	minLen  = 64 << 10
	maxLen  = 1 << 20
	page    = 4096
	settled = 10 * time.Millisecond
)

var (
	workers = flag.Int("workers", 4, "goroutines that transfer")
	hold    = flag.Int("buffers", 8, "buffers of each")
	gets    = flag.Int("gets", 4000, "gets of each, in each phase")
	drop    = flag.Duration("drop", 0, "call FreeOSMemory() at this interval")
	fresh   = flag.Int("fresh", 8, "one get in so many is of a new buffer")
	read    = flag.Int("read", 16, "one get in so many is read into")
	percent = flag.Float64("percent", 10, "the most that may be not kept")
	tries   = flag.Int("tries", 1, "how often the last phase may be tried")
	compute = flag.Int("compute", 0, "goroutines that only compute")
	hooked  = flag.Int("hooked", -1, "what the notifier has to say of hooks")
)

type stats struct{ gets, hits, uncached uint64 }

type rig struct {
	c     *C.struct_rig
	reads uint64
	stale uint64
	drops uint64
}

func fail(rc C.int, what string) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", what, C.GoString(C.rig_why(rc)))
	os.Exit(1)
}

func (r *rig) stats() stats {
	var s C.struct_kedge_cache_stats

	if rc := C.rig_stats(r.c, &s); rc != 0 {
		fail(rc, "stats")
	}
	return stats{uint64(s.gets), uint64(s.hits), uint64(s.uncached)}
}

func newBuffer(rnd *rand.Rand) []byte {
	buf := make([]byte, minLen+rnd.Intn(maxLen-minLen+1))
	for at := 0; at < len(buf); at += page {
		buf[at] = 1
	}
	return buf
}

// Checks that the ring's data arrive where the program looks.
func (r *rig) transfer(buf []byte, mr *C.struct_kedge_mr, at int) {
	for i := 0; i < len(buf); i += page {
		buf[i] = ^byte(C.rig_byte(C.size_t(at + i)))
	}
	rc := C.rig_read(r.c, unsafe.Pointer(&buf[0]), C.size_t(len(buf)),
		C.size_t(at), mr)
	if rc != 0 {
		fail(rc, "READ_FIXED")
	}
	atomic.AddUint64(&r.reads, 1)
	for i := 0; i < len(buf); i += page {
		if buf[i] != byte(C.rig_byte(C.size_t(at+i))) {
			atomic.AddUint64(&r.stale, 1)
			return
		}
	}
}

func (r *rig) work(seed int64, bufs [][]byte) {
	rnd := rand.New(rand.NewSource(seed))

	for i := 0; i < *gets; i++ {
		at := rnd.Intn(len(bufs))
		if rnd.Intn(*fresh) == 0 {
			bufs[at] = newBuffer(rnd)
		}
		buf := bufs[at]
		var mr *C.struct_kedge_mr
		rc := C.rig_get(r.c, unsafe.Pointer(&buf[0]),
			C.size_t(len(buf)), &mr)
		if rc != 0 {
			fail(rc, "get")
		}
		if rnd.Intn(*read) == 0 {
			r.transfer(buf, mr, rnd.Intn(page))
		}
		C.rig_put(r.c, mr)
	}
}

// Every goroutine does its gets; what that added to the statistics.
func (r *rig) phase(bufs [][][]byte, seed int64) stats {
	var wg sync.WaitGroup

	was := r.stats()
	for i := range bufs {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			r.work(seed+int64(i), bufs[i])
		}(i)
	}
	wg.Wait()
	now := r.stats()
	return stats{now.gets - was.gets, now.hits - was.hits,
		now.uncached - was.uncached}
}

func (r *rig) dropUntil(stop chan struct{}, over *sync.WaitGroup) {
	tick := time.NewTicker(*drop)

	defer over.Done()
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			debug.FreeOSMemory()
			atomic.AddUint64(&r.drops, 1)
		}
	}
}

func report(what string, s stats) float64 {
	share := 100 * float64(s.uncached) / float64(s.gets)
	fmt.Printf("%s: %d gets, %d hits, %d not kept (%.2f %%)\n", what,
		s.gets, s.hits, s.uncached, share)
	return share
}

// The phase with drops, at least one of them; then none for a while.
func (r *rig) dropping(bufs [][][]byte) {
	var over sync.WaitGroup

	stop := make(chan struct{})
	over.Add(1)
	go r.dropUntil(stop, &over)
	s := r.phase(bufs, 1)
	for round := int64(2); atomic.LoadUint64(&r.drops) == 0; round++ {
		more := r.phase(bufs, 100*round)
		s = stats{s.gets + more.gets, s.hits + more.hits,
			s.uncached + more.uncached}
	}
	close(stop)
	over.Wait()
	report(fmt.Sprintf("with %d drops", r.drops), s)
}

// One get of each buffer, a while after the last drop.
func (r *rig) eachOnce(bufs [][][]byte) float64 {
	time.Sleep(settled)
	was := r.stats()
	for _, some := range bufs {
		for _, buf := range some {
			var mr *C.struct_kedge_mr

			rc := C.rig_get(r.c, unsafe.Pointer(&buf[0]),
				C.size_t(len(buf)), &mr)
			if rc != 0 {
				fail(rc, "get")
			}
			C.rig_put(r.c, mr)
		}
	}
	now := r.stats()
	return report("each once", stats{now.gets - was.gets,
		now.hits - was.hits, now.uncached - was.uncached})
}

// Spin until the program ends.
func spin() {
	for x := uint64(1); x != 0; {
		x = x*6364136223846793005 | 1
	}
}

func makeBuffers() [][][]byte {
	rnd := rand.New(rand.NewSource(99))
	bufs := make([][][]byte, *workers)

	for i := range bufs {
		for len(bufs[i]) < *hold {
			bufs[i] = append(bufs[i], newBuffer(rnd))
		}
	}
	return bufs
}

func skip(why string) {
	fmt.Println("skipped:", why)
	os.Exit(77)
}

func main() {
	var info C.struct_kedge_notifier_info

	r := &rig{}
	flag.Parse()
	if rc := C.rig_info(&info); rc != 0 {
		fail(rc, "the notifier")
	}
	if info.level < C.KEDGE_LEVEL_ORDERED {
		skip("there is no notifier of level ordered")
	}
	bufs := makeBuffers()
	if rc := C.rig_open(&r.c); rc != 0 {
		skip(C.GoString(C.rig_why(rc)))
	}
	for i := 0; i < *compute; i++ {
		go spin()
	}
	if *drop != 0 {
		r.dropping(bufs)
	}
	share := 100.0
	for i := 0; *drop != 0 && i < *tries && share > *percent; i++ {
		share = r.eachOnce(bufs)
	}
	bad := *drop != 0 && share > *percent
	share = 100.0
	for i := 0; i < *tries && share > *percent; i++ {
		share = report("without", r.phase(bufs, int64(1000*(i+1))))
	}
	fmt.Printf("%d reads, %d stale; hooks effective: %d\n", r.reads,
		r.stale, int(info.hooked))
	bad = bad || r.stale != 0 || share > *percent
	if *hooked >= 0 && int(info.hooked) != *hooked {
		fmt.Fprintf(os.Stderr, "hooks effective: %d is wanted\n",
			*hooked)
		bad = true
	}
	C.rig_close(r.c)
	if bad {
		os.Exit(1)
	}
}
