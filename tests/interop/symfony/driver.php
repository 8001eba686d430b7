<?php
// Symfony Lock on phpredis. See tests/interop/README for the form of a driver.
require_once 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\Store\RedisStore;

[, $verb] = $argv;
if ($verb === 'version') {
    echo trim(shell_exec("dpkg-query -Wf '\${Version}' php-symfony-lock")), "\n";
    exit(0);
}
[, , $url, $name, $lease] = $argv;
$redis = new Redis();
$redis->connect(parse_url($url, PHP_URL_HOST), parse_url($url, PHP_URL_PORT));
$fresh = fn () => new Lock(new Key($name), new RedisStore($redis), $lease / 1000, false);

function acquired($lock, float $wait): bool
{
    for ($end = microtime(true) + $wait;; usleep(30000)) {
        if ($lock->acquire()) {
            return true;
        }
        if (microtime(true) >= $end) {
            return false;
        }
    }
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

/** Symfony's release deletes only what is its own, and does not tell whether that was there. */
function released($lock): bool
{
    $ours = $lock->isAcquired();
    try {
        $lock->release();
    } catch (Exception) {
        return false;
    }
    return $ours;
}

if ($verb === 'try') {
    $lock = $fresh();
    if (!acquired($lock, 0)) {
        exit(75);
    }
    $lock->release();
} elseif ($verb === 'hold') {
    $lock = $fresh();
    if (!acquired($lock, 60)) {
        exit(75);
    }
    printf("held %.6f\n", microtime(true));
    fgets(STDIN);
    $before = microtime(true);
    printf("%s %.6f\n", released($lock) ? 'released' : 'lost', $before);
} else {
    $count = 0;
    for ($end = microtime(true) + (float) $argv[5]; microtime(true) < $end; usleep(5000)) {
        $lock = $fresh();
        if (acquired($lock, 5)) {
            section($argv[6]);
            $lock->release();
            ++$count;
        }
    }
    echo "sections $count\n";
}
