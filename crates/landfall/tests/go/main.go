// A go-redis client against the server whose address is the first argument; with a second argument, see follow.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func must(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func equal(got, want any, what string) {
	if got != want {
		must(fmt.Errorf("got %v, want %v", got, want), what)
	}
}

func main() {
	if len(os.Args) > 2 {
		follow(os.Args[1], os.Args[2])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: os.Args[1], ClientName: "go", DB: 1})
	defer client.Close()
	large := strings.Repeat("0123456789", 50000)
	must(client.Set(ctx, "large", large, 0).Err(), "SET")
	got, err := client.Get(ctx, "large").Result()
	must(err, "GET")
	equal(got == large, true, "GET")
	_, err = client.Get(ctx, "missing").Result()
	equal(errors.Is(err, redis.Nil), true, "GET of nothing")
	must(client.Set(ctx, "brief", "x", time.Hour).Err(), "SET EX")
	left, err := client.TTL(ctx, "brief").Result()
	must(err, "TTL")
	equal(left > 59*time.Minute && left <= time.Hour, true, "TTL")
	results, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for index := 0; index < 100; index++ {
			pipe.Set(ctx, fmt.Sprintf("p%03d", index), index, 0)
		}
		return nil
	})
	must(err, "pipeline")
	equal(len(results), 100, "pipeline")
	must(client.Watch(ctx, func(tx *redis.Tx) error {
		count, err := tx.Get(ctx, "p007").Int()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "p007", count+1, 0)
			pipe.Incr(ctx, "counter")
			return nil
		})
		return err
	}, "p007"), "WATCH")
	values, err := client.MGet(ctx, "p007", "counter", "missing").Result()
	must(err, "MGET")
	equal(fmt.Sprint(values), "[8 1 <nil>]", "MGET")
	found, scan := 0, client.Scan(ctx, 0, "p*", 10).Iterator()
	for scan.Next(ctx) {
		found++
	}
	must(scan.Err(), "SCAN")
	equal(found, 100, "SCAN")
	size, err := client.DBSize(ctx).Result()
	must(err, "DBSIZE")
	equal(size, int64(103), "DBSIZE")
	fmt.Println("fine")
}
