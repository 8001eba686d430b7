<?php
// What a driver in PHP does with its lock.

function connected(string $url): Redis
{
    $redis = new Redis();
    $redis->connect(parse_url($url, PHP_URL_HOST), parse_url($url, PHP_URL_PORT));
    return $redis;
}

function section(string $inside): void
{
    $file = @fopen($inside, 'x');
    if ($file === false) {
        echo "overlap\n";
        return;
    }
    fclose($file);
    usleep(2000);
    unlink($inside);
}

/**
 * Does what the arguments say. $open(URL, KEY, LEASE) makes a function that makes locks; $acquire(LOCK)
 * tries once; $release(LOCK) tells whether the lock was its own.
 */
function run(array $arguments, callable $open, callable $acquire, callable $release): void
{
    [, $verb, $url, $key, $lease] = $arguments;
    $fresh = $open($url, $key, (int) $lease);
    $acquired = function ($lock, float $wait) use ($acquire): bool {
        for ($end = microtime(true) + $wait;; usleep(30000)) {
            if ($acquire($lock)) {
                return true;
            }
            if (microtime(true) >= $end) {
                return false;
            }
        }
    };
    if ($verb === 'try') {
        $lock = $fresh();
        if (!$acquired($lock, 0)) {
            exit(75);
        }
        $release($lock);
    } elseif ($verb === 'hold') {
        $lock = $fresh();
        if (!$acquired($lock, 60)) {
            exit(75);
        }
        printf("held %.6f\n", microtime(true));
        fgets(STDIN);
        $before = microtime(true);
        printf("%s %.6f\n", $release($lock) ? 'released' : 'lost', $before);
    } else {
        $count = 0;
        for ($end = microtime(true) + (float) $arguments[5]; microtime(true) < $end; usleep(5000)) {
            $lock = $fresh();
            if ($acquired($lock, 5)) {
                section($arguments[6]);
                $release($lock);
                ++$count;
            }
        }
        echo "sections $count\n";
    }
}
