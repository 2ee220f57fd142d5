// SPDX-License-Identifier: BSD-2-Clause

package kedge_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"

	"kedge"
	"kedge/uring"
)

func Example() {
	ring, err := uring.Open(nil) // an io_uring: its fixed buffers are the device
	if err != nil {
		log.Fatal(err)
	}
	cache, err := kedge.OpenCache(ring, nil)
	if err != nil {
		log.Fatal(err)
	}
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	for i := 0; i < 2; i++ {
		r, err := cache.Get(buf)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := ring.ReadAt(program.Fd(), &r, 0); err != nil {
			log.Fatal(err)
		}
		r.Put()
		fmt.Printf("%q\n", buf[1:4])
	}
	program.Close()
	cache.Close()
	ring.Close()
	// Output:
	// "ELF"
	// "ELF"
}

func ExampleCache_Get() {
	cache, err := kedge.OpenCache(kedge.Memory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	_, err = cache.Get(nil)
	fmt.Println(errors.Is(err, syscall.EINVAL))
	// Output: true
}

func ExampleDial() {
	listener, err := kedge.Listen("tcp", "127.0.0.1:0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	ctx := context.Background()
	go func() { // another process, most often
		channel, err := kedge.Dial(ctx, "tcp", listener.Addr(), nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := channel.Send(ctx, []byte("hello"), 7); err != nil {
			log.Fatal(err)
		}
		channel.Close()
	}()
	channel, err := listener.Accept(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer channel.Close()
	buf := make([]byte, 100)
	m, err := channel.Recv(ctx, buf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Tag, string(buf[:m.Len]))
	// Output: 7 hello
}

func ExampleNotifier() {
	notifier, err := kedge.OpenNotifier(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer notifier.Close()
	info, err := notifier.Info()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Watches)
	// Output: 0
}
