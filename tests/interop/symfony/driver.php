<?php
// Symfony Lock on phpredis. See tests/interop/README for the form of a driver.
require_once 'Symfony/Component/Lock/autoload.php';
require_once __DIR__ . '/../common.php';

use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\Store\RedisStore;

if ($argv[1] === 'version') {
    echo trim(shell_exec("dpkg-query -Wf '\${Version}' php-symfony-lock")), "\n";
    exit(0);
}

function open(string $url, string $key, int $lease): callable
{
    $redis = connected($url);
    return fn () => new Lock(new Key($key), new RedisStore($redis), $lease / 1000, false);
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

run($argv, 'open', fn ($lock) => $lock->acquire(), 'released');
