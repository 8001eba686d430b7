<?php
// Laravel's Cache::lock on phpredis. See tests/interop/README for the form of a driver.
require_once 'Illuminate/Cache/autoload.php';
require_once 'Illuminate/Redis/autoload.php';
require_once __DIR__ . '/../common.php';

use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;

if ($argv[1] === 'version') {
    echo trim(shell_exec("dpkg-query -Wf '\${Version}' php-illuminate-cache")), "\n";
    exit(0);
}

function open(string $url, string $key, int $lease): callable
{
    $server = ['host' => parse_url($url, PHP_URL_HOST), 'port' => parse_url($url, PHP_URL_PORT)];
    $redis = new RedisManager(null, 'phpredis', ['default' => $server]);
    $store = new RedisStore($redis, 'app_cache', 'default');
    return fn () => $store->lock($key, max(1, intdiv($lease, 1000)));
}

run($argv, 'open', fn ($lock) => $lock->get(), fn ($lock) => $lock->release());
