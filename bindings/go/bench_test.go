// SPDX-License-Identifier: BSD-2-Clause

package kedge_test

import (
	"context"
	"testing"

	"kedge"
)

func benchmarkGet(b *testing.B, buf []byte) {
	c := memoryCache(b)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		r, err := c.Get(buf)
		if err != nil {
			b.Fatal(err)
		}
		r.Put()
	}
}

func BenchmarkGetHeap(b *testing.B) { benchmarkGet(b, make([]byte, 1<<20)) }

func BenchmarkGetBuffer(b *testing.B) { benchmarkGet(b, buffer(b, 1<<20).Bytes()) }

func BenchmarkGetParallel(b *testing.B) {
	c := memoryCache(b)
	buf := make([]byte, 1<<20)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := c.Get(buf)
			if err != nil {
				b.Fatal(err)
			}
			r.Put()
		}
	})
}

func BenchmarkGeneration(b *testing.B) {
	n := openNotifier(b)
	for i := 0; i < b.N; i++ {
		n.Generation()
	}
}

func benchmarkMessage(b *testing.B, network string, n int) {
	e := connect(b, network, nil)
	ctx := context.Background()
	done := make(chan error)
	go func() {
		buf := make([]byte, n)
		for i := 0; i < b.N; i++ {
			if _, err := e.b.Recv(ctx, buf); err != nil {
				done <- err
				return
			}
			if err := e.b.Send(ctx, buf, 0); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	buf := make([]byte, n)
	b.SetBytes(int64(2 * n))
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if err := e.a.Send(ctx, buf, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := e.a.Recv(ctx, buf); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPingPongShm(b *testing.B) { benchmarkMessage(b, "shm", 64) }

func BenchmarkPingPongShmLarge(b *testing.B) { benchmarkMessage(b, "shm", 1<<20) }

func BenchmarkPingPongTcp(b *testing.B) { benchmarkMessage(b, "tcp", 64) }

var _ kedge.Device = kedge.Memory
