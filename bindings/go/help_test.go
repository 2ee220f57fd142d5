// SPDX-License-Identifier: BSD-2-Clause

package kedge_test

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"kedge"
	"kedge/uring"
)

const page = 4096

// watching skips a test where the default notifier does not see all changes.
func watching(t testing.TB) {
	t.Helper()
	n, err := kedge.OpenNotifier(nil)
	if err != nil {
		t.Skip("there is no notifier:", err)
	}
	defer n.Close()
	info, err := n.Info()
	if err != nil {
		t.Fatal(err)
	}
	if info.Level < kedge.LevelOrdered {
		t.Skip("nothing can be watched here: the notifier is", info.Backend)
	}
}

func openCache(t testing.TB, d kedge.Device, o *kedge.CacheOptions) *kedge.Cache {
	t.Helper()
	c, err := kedge.OpenCache(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return c
}

func memoryCache(t testing.TB) *kedge.Cache {
	t.Helper()
	watching(t)
	return openCache(t, kedge.Memory, nil)
}

func stats(t testing.TB, c *kedge.Cache) kedge.CacheStats {
	t.Helper()
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openRing(t testing.TB) *uring.Ring {
	t.Helper()
	r, err := uring.Open(nil)
	if err != nil {
		t.Skip("there is no io_uring:", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return r
}

// buffer is memory of Alloc that is freed with the test.
func buffer(t testing.TB, n int) *kedge.Buffer {
	t.Helper()
	b, err := kedge.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Free)
	return b
}

// drop drops the pages of b by a system call of its own, as Go's runtime does it.
func drop(t testing.TB, b []byte) {
	t.Helper()
	_, _, errno := syscall.RawSyscall(syscall.SYS_MADVISE,
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), syscall.MADV_DONTNEED)
	if errno != 0 {
		t.Fatal(errno)
	}
}

// pattern is the byte at a position of the file that devices read from.
func pattern(at int) byte { return byte(at*31 + at/page) }

const fileLen = 2 << 20

func patternFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "pattern")
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, fileLen)
	for i := range text {
		text[i] = pattern(i)
	}
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
