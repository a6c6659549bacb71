"""All settings, read from the environment. Bad values fail at start-up, with the variable's name.

Without any variable set, the hub runs embedded: SQLite, an in-memory broker and an in-memory channel layer,
its state under `.mcphub/` beside `manage.py`.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from mcphub import environment as env

BASE_DIR = Path(__file__).resolve().parent.parent

MCPHUB_DATA_DIR = Path(env.text("MCPHUB_DATA_DIR", str(BASE_DIR / ".mcphub"))).resolve()
MCPHUB_DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)


def generated_secret(path: Path) -> str:
    """The secret in `path`, made on first use and readable by its owner only."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(64))
        # Linked when it is whole: of several processes that start at once one wins, and none reads half a secret.
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text().strip()


# Signs cookies and is the root of the keys that seal secrets and arguments at rest. Every process needs the same one.
SECRET_KEY = env.text("MCPHUB_SECRET_KEY") or generated_secret(MCPHUB_DATA_DIR / "secret.key")
# Earlier values of MCPHUB_SECRET_KEY, newest first: what they sealed can still be opened.
SECRET_KEY_FALLBACKS = env.items("MCPHUB_SECRET_KEY_FALLBACKS")

DEBUG = env.flag("MCPHUB_DEBUG")
ALLOWED_HOSTS = env.items("MCPHUB_ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])

# --- Applications ---------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "daphne",
    # The basic configuration: the hub has an admin site of its own (`tools_app.admin.site`).
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "tools_app",
    # Apps of the operator's own, each with an `mcp_tools.py`.
    *env.items("MCPHUB_APPS"),
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "mcphub.urls"
ASGI_APPLICATION = "mcphub.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Stores ---------------------------------------------------------------------------------------------------

DATABASES = {"default": env.database("DATABASE_URL", MCPHUB_DATA_DIR / "hub.sqlite3")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        # FULL: a commit that returned survives a power cut, which is what "durable" promises.
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
            "PRAGMA journal_size_limit=67108864; PRAGMA wal_autocheckpoint=4000;"
        ),
    }
    # Tests use a file too: the recorder writes over a connection of its own, which ":memory:" does not share.
    DATABASES["default"]["TEST"] = {"NAME": str(MCPHUB_DATA_DIR / "test.sqlite3")}
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASES["default"]["CONN_MAX_AGE"] = env.whole("MCPHUB_DATABASE_CONN_MAX_AGE", 60, least=0)

REDIS_URL = env.text("REDIS_URL")
if REDIS_URL:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [REDIS_URL], "prefix": env.text("MCPHUB_REDIS_PREFIX", "mcphub")},
        }
    }
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "tools_app.events.layer.LocalChannelLayer"}}

# --- Celery ---------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = env.text("CELERY_BROKER_URL", REDIS_URL or "memory://localhost/")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = env.text("MCPHUB_QUEUE", "mcphub")
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
if CELERY_BROKER_URL.startswith("memory:"):
    # The in-memory transport looks once a second unless told otherwise.
    CELERY_BROKER_TRANSPORT_OPTIONS = {"polling_interval": 0.005}

# --- The hub --------------------------------------------------------------------------------------------------

MCPHUB_ALLOWED_ORIGINS = env.items("MCPHUB_ALLOWED_ORIGINS")
# How many proxies in front of the hub may be believed about the caller's address (X-Forwarded-For).
MCPHUB_TRUSTED_PROXIES = env.whole("MCPHUB_TRUSTED_PROXIES", 0, least=0)
MCPHUB_MAX_BODY_BYTES = env.whole("MCPHUB_MAX_BODY_BYTES", 4 * 1024 * 1024)
MCPHUB_MAX_JSON_DEPTH = env.whole("MCPHUB_MAX_JSON_DEPTH", 64)
MCPHUB_MAX_BATCH = env.whole("MCPHUB_MAX_BATCH", 50)
MCPHUB_PAGE_SIZE = env.whole("MCPHUB_PAGE_SIZE", 100)
MCPHUB_PAYLOAD_BYTES = env.whole("MCPHUB_PAYLOAD_BYTES", 64 * 1024)
MCPHUB_SESSION_IDLE_SECONDS = env.seconds("MCPHUB_SESSION_IDLE_SECONDS", 24 * 3600.0)
MCPHUB_QUEUE_SECONDS = env.seconds("MCPHUB_QUEUE_SECONDS", 300.0)
MCPHUB_LOST_SECONDS = env.seconds("MCPHUB_LOST_SECONDS", 5.0)
MCPHUB_CANCEL_SECONDS = env.seconds("MCPHUB_CANCEL_SECONDS", 3.0)
MCPHUB_DRAIN_SECONDS = env.seconds("MCPHUB_DRAIN_SECONDS", 10.0)
MCPHUB_ASK_SECONDS = env.seconds("MCPHUB_ASK_SECONDS", 600.0)
MCPHUB_TASK_AFTER_SECONDS = env.seconds("MCPHUB_TASK_AFTER_SECONDS", 1.0)
MCPHUB_TASK_SECONDS = env.seconds("MCPHUB_TASK_SECONDS", 3600.0)
MCPHUB_STREAM_AFTER_SECONDS = env.seconds("MCPHUB_STREAM_AFTER_SECONDS", 3.0)
MCPHUB_KEEPALIVE_SECONDS = env.seconds("MCPHUB_KEEPALIVE_SECONDS", 15.0)
MCPHUB_RECORDER_QUEUE = env.whole("MCPHUB_RECORDER_QUEUE", 10_000)
MCPHUB_WORKER_THREADS = env.whole("MCPHUB_WORKER_THREADS", 8)

# What `up` gives the first admin and the demo tenant's first key; it makes them up when these are empty.
MCPHUB_ADMIN_PASSWORD = env.text("MCPHUB_ADMIN_PASSWORD")
MCPHUB_DEMO_API_KEY = env.text("MCPHUB_DEMO_API_KEY")
# Whom `mcp_stdio` acts as, without a key on its command line.
MCPHUB_KEY = env.text("MCPHUB_KEY")

# --- Pages ----------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
# Straight from the packages: there is nothing to collect before the first start.
WHITENOISE_USE_FINDERS = True
LOGIN_URL = "admin:login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

UNFOLD = {
    "SITE_TITLE": "mcphub",
    "SITE_HEADER": "mcphub",
    "SITE_SUBHEADER": "MCP tools for many tenants",
    "SITE_SYMBOL": "hub",
    "SITE_URL": None,
    "SIDEBAR": {"navigation": "tools_app.admin.navigation.sidebar"},
}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
}

# --- Behind HTTPS ---------------------------------------------------------------------------------------------

if env.flag("MCPHUB_HTTPS"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
CSRF_TRUSTED_ORIGINS = [origin for origin in MCPHUB_ALLOWED_ORIGINS if "://" in origin]
SESSION_COOKIE_HTTPONLY = True

LOG_LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.choice("MCPHUB_LOG_LEVEL", LOG_LEVELS, "WARNING")},
}
