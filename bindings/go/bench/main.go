// SPDX-License-Identifier: BSD-2-Clause

// Bench measures what a get and its put cost in Go beside the same calls in C, on the
// same memory, in turns: whatever disturbs the machine meets both. Printed are the medians
// of each, and the median of the rounds' differences.
package main

/*
#cgo CFLAGS: -D_GNU_SOURCE
#cgo LDFLAGS: -lkedge
#include <time.h>
#include <kedge/kedge.h>

static int reg(void *ctx, void *addr, size_t len, uint32_t access, struct kedge_device_mr *mr)
{
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static int open_cache(struct kedge_cache **c)
{
	static const struct kedge_device_ops ops = {
		.size = sizeof(ops), .name = "bench", .reg = reg, .dereg = dereg,
	};
	struct kedge_device *dev;
	int rc = kedge_device_open(&ops, NULL, &dev);

	return rc ? rc : kedge_cache_open(dev, NULL, NULL, c);
}

// Nanoseconds of so many gets and puts; 0 if one fails.
static double by_c(struct kedge_cache *c, unsigned char *addr, size_t len, int passes)
{
	const struct kedge_mr *mr;
	struct timespec from, to;
	int i;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (i = 0; i < passes; i++) {
		if (kedge_cache_get(c, addr, len, KEDGE_ACCESS_LOCAL_WRITE, &mr))
			return 0;
		kedge_cache_put(c, mr);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec);
}

static void nothing(int unused)
{
}
*/
import "C"

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sort"
	"time"
	"unsafe"

	"kedge"
)

var (
	rounds = flag.Int("rounds", 101, "how often each is measured")
	passes = flag.Int("passes", 2000, "gets and puts of a round")
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}

func byGo(c *kedge.Cache, b []byte) float64 {
	from := time.Now()
	for i := 0; i < *passes; i++ {
		r, err := c.Get(b)
		check(err)
		r.Put()
	}
	return float64(time.Since(from).Nanoseconds())
}

func emptyCalls() float64 {
	from := time.Now()
	for i := 0; i < *passes; i++ {
		C.nothing(0)
		C.nothing(0)
	}
	return float64(time.Since(from).Nanoseconds())
}

func measure(name string, c *kedge.Cache, cc *C.struct_kedge_cache, b []byte) {
	var inGo, inC, empty, more []float64

	for i := 0; i < *rounds; i++ {
		g := byGo(c, b) / float64(*passes)
		n := float64(C.by_c(cc, (*C.uchar)(unsafe.Pointer(&b[0])), C.size_t(len(b)),
			C.int(*passes))) / float64(*passes)
		if n == 0 {
			check(fmt.Errorf("a get of C's has failed"))
		}
		inGo, inC, more = append(inGo, g), append(inC, n), append(more, g-n)
		empty = append(empty, emptyCalls()/float64(*passes))
	}
	fmt.Printf("%-8s Go %6.1f ns, C %6.1f ns, Go's more %6.1f ns; two empty calls %6.1f ns\n",
		name, median(inGo), median(inC), median(more), median(empty))
}

func main() {
	var cc *C.struct_kedge_cache

	flag.Parse()
	runtime.LockOSThread()
	n, err := kedge.OpenNotifier(nil)
	check(err)
	info, err := n.Info()
	check(err)
	check(n.Close())
	c, err := kedge.OpenCache(kedge.Memory, nil)
	check(err)
	if rc := C.open_cache(&cc); rc != 0 {
		check(fmt.Errorf("%s", C.GoString(C.kedge_strerror(rc))))
	}
	buf, err := kedge.Alloc(1 << 20)
	check(err)
	fmt.Printf("notifier %s, hooks %v, %s\n", info.Backend, info.Hooked, runtime.Version())
	measure("heap", c, cc, make([]byte, 1<<20))
	measure("Alloc", c, cc, buf.Bytes())
}
