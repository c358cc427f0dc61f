package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// follow writes for some seconds to whichever server of the chain `orders` takes writes, by the servers at these
// addresses, and reads everything that was acknowledged.
func follow(addresses, seconds string) {
	ctx := context.Background()
	limit, err := strconv.Atoi(seconds)
	must(err, "seconds")
	options := redis.FailoverOptions{
		MasterName:    "orders",
		SentinelAddrs: strings.Split(addresses, ","),
		DialTimeout:   time.Second,
		ReadTimeout:   time.Second,
	}
	client := redis.NewFailoverClient(&options)
	defer client.Close()
	var acknowledged []int
	last, longest := time.Now(), time.Duration(0)
	until := last.Add(time.Duration(limit) * time.Second)
	for number := 0; time.Now().Before(until); number++ {
		if client.Set(ctx, fmt.Sprintf("key:%d", number), number, 0).Err() != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		longest, last = max(longest, time.Since(last)), time.Now()
		acknowledged = append(acknowledged, number)
	}
	equal(time.Since(last) < 5*time.Second, true, "writes at the end")
	for _, number := range acknowledged {
		got, err := client.Get(ctx, fmt.Sprintf("key:%d", number)).Int()
		must(err, "GET of an acknowledged write")
		equal(got, number, "GET of an acknowledged write")
	}
	options.ReplicaOnly = true
	replica := redis.NewFailoverClient(&options)
	defer replica.Close()
	must(replica.Get(ctx, "key:0").Err(), "GET at a replica")
	fmt.Println(len(acknowledged), "writes, longest gap", longest)
	fmt.Println("fine")
}
