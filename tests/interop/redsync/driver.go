// redsync and redislock on go-redis. See tests/interop/README for the form of a driver.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// rival acquires within `wait` (0: one try) and says how to release; nil if it was refused.
type rival func(wait time.Duration) func() bool

func clients(urls string) []*redis.Client {
	var all []*redis.Client
	for _, url := range strings.Split(urls, ",") {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		all = append(all, redis.NewClient(options))
	}
	return all
}

func byRedsync(urls, key string, lease time.Duration) rival {
	var pools []redsyncredis.Pool
	for _, client := range clients(urls) {
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)
	return func(wait time.Duration) func() bool {
		mutex := rs.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(1))
		for end := time.Now().Add(wait); ; time.Sleep(30 * time.Millisecond) {
			if mutex.Lock() == nil {
				return func() bool { ok, _ := mutex.Unlock(); return ok }
			}
			if !time.Now().Before(end) {
				return nil
			}
		}
	}
}

func byRedislock(urls, key string, lease time.Duration) rival {
	locker := redislock.New(clients(urls)[0])
	background := context.Background()
	return func(wait time.Duration) func() bool {
		options := &redislock.Options{}
		limited, cancel := context.WithTimeout(background, wait+5*time.Second)
		if wait > 0 {
			limited, cancel = context.WithTimeout(background, wait)
			options.RetryStrategy = redislock.LinearBackoff(30 * time.Millisecond)
		}
		defer cancel()
		lock, err := locker.Obtain(limited, key, lease, options)
		if err != nil {
			return nil
		}
		return func() bool { return lock.Release(background) == nil }
	}
}

func seconds() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func section(inside string) {
	file, err := os.OpenFile(inside, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		fmt.Println("overlap")
		return
	}
	file.Close()
	time.Sleep(2 * time.Millisecond)
	os.Remove(inside)
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "?"
}

func main() {
	library, arguments := os.Args[1], os.Args[2:]
	if arguments[0] == "version" {
		path := map[string]string{"redsync": "github.com/go-redsync/redsync/v4",
			"redislock": "github.com/bsm/redislock"}[library]
		fmt.Println(version(path))
		return
	}
	verb, urls, key := arguments[0], arguments[1], arguments[2]
	milliseconds, _ := strconv.Atoi(arguments[3])
	lease := time.Duration(milliseconds) * time.Millisecond
	acquire := byRedsync(urls, key, lease)
	if library == "redislock" {
		acquire = byRedislock(urls, key, lease)
	}
	switch verb {
	case "try":
		release := acquire(0)
		if release == nil {
			os.Exit(75)
		}
		release()
	case "hold":
		release := acquire(time.Minute)
		if release == nil {
			os.Exit(75)
		}
		fmt.Println("held", seconds())
		bufio.NewReader(os.Stdin).ReadString('\n')
		before := seconds()
		word := "lost"
		if release() {
			word = "released"
		}
		fmt.Println(word, before)
	default:
		length, _ := strconv.ParseFloat(arguments[4], 64)
		count := 0
		for end := seconds() + length; seconds() < end; time.Sleep(5 * time.Millisecond) {
			if release := acquire(5 * time.Second); release != nil {
				section(arguments[5])
				release()
				count++
			}
		}
		fmt.Println("sections", count)
	}
}
