"""All settings, read from the environment. Bad values fail at start-up, with the variable's name.

Without any variable set, the hub runs embedded: SQLite, an in-memory broker and an in-memory channel layer,
its state under `.mcphub/` beside `manage.py`.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from celery.schedules import crontab
from kombu import Exchange, Queue

from mcphub import environment as env
from tools_app.telemetry.scrubbing import hide, hide_password_of

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
# Signs what is said of the audit log. Not the secret key: whoever verifies may have the one without the other.
MCPHUB_AUDIT_KEY = env.key_text("MCPHUB_AUDIT_KEY") or generated_secret(MCPHUB_DATA_DIR / "audit.key")
# Public keys of other hosts, and of earlier audit keys, whose signatures count here too.
MCPHUB_AUDIT_PUBLIC_KEYS = env.public_keys("MCPHUB_AUDIT_PUBLIC_KEYS")

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
    "drf_spectacular",
    "drf_spectacular_sidecar",
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
    "tools_app.admin.acting.acting_person",
    "tools_app.admin.zone.viewers_zone",
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
    # A host that is cut off is noticed within seconds; what the address says goes first.
    DATABASES["default"]["OPTIONS"] = {
        "connect_timeout": 3,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        **DATABASES["default"].get("OPTIONS", {}),
    }
DATABASES["default"]["CONN_MAX_AGE"] = env.whole("MCPHUB_DATABASE_CONN_MAX_AGE", 60, least=0)

REDIS_URL = env.text("REDIS_URL")
MCPHUB_REDIS_PREFIX = env.text("MCPHUB_REDIS_PREFIX", "mcphub")
# Nobody waits longer for a server that is frozen or cut off.
REDIS_TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 2.0}
if REDIS_URL:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [{"address": REDIS_URL, **REDIS_TIMEOUTS}], "prefix": MCPHUB_REDIS_PREFIX},
        }
    }
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "tools_app.events.layer.LocalChannelLayer"}}

# --- Celery ---------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = env.text("CELERY_BROKER_URL", REDIS_URL or "memory://localhost/")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = env.text("MCPHUB_QUEUE", "mcphub")
# Lanes of the queue, of which workers take in turn: what one tenant queues is not in the way of the others.
MCPHUB_LANES = env.whole("MCPHUB_LANES", 16)
CELERY_TASK_QUEUES = [
    Queue(name, Exchange(CELERY_TASK_DEFAULT_QUEUE), routing_key=name)
    for name in (CELERY_TASK_DEFAULT_QUEUE, *(f"{CELERY_TASK_DEFAULT_QUEUE}.{lane}" for lane in range(MCPHUB_LANES)))
]
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULE = {
    # A night's pruning that no worker took is not made up for: the next one does it all.
    "prune": {"task": "tools_app.prune", "schedule": crontab(hour=3, minute=20), "options": {"expires": 12 * 3600}},
}
if CELERY_BROKER_URL.startswith("redis"):
    # A broker that is away refuses a call soon: unless told otherwise, whoever queues would wait for it.
    CELERY_BROKER_TRANSPORT_OPTIONS = {**REDIS_TIMEOUTS, "max_retries": 1, "interval_start": 0.1, "interval_max": 0.1}
# Workers look for a broker that is away until it is back.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None

# --- The hub --------------------------------------------------------------------------------------------------

MCPHUB_ALLOWED_ORIGINS = env.items("MCPHUB_ALLOWED_ORIGINS")
# How many proxies in front of the hub may be believed about the caller's address (X-Forwarded-For).
MCPHUB_TRUSTED_PROXIES = env.whole("MCPHUB_TRUSTED_PROXIES", 0, least=0)
MCPHUB_MAX_BODY_BYTES = env.whole("MCPHUB_MAX_BODY_BYTES", 4 * 1024 * 1024)
MCPHUB_MAX_JSON_DEPTH = env.whole("MCPHUB_MAX_JSON_DEPTH", 64)
MCPHUB_MAX_BATCH = env.whole("MCPHUB_MAX_BATCH", 50)
MCPHUB_PAGE_SIZE = env.whole("MCPHUB_PAGE_SIZE", 100)
MCPHUB_ARGUMENT_BYTES = env.whole("MCPHUB_ARGUMENT_BYTES", 1024 * 1024)
MCPHUB_RESULT_BYTES = env.whole("MCPHUB_RESULT_BYTES", 16 * 1024 * 1024)
MCPHUB_MOST_SESSIONS = env.whole("MCPHUB_MOST_SESSIONS", 10_000)
MCPHUB_PROGRESS_PER_SECOND = env.whole("MCPHUB_PROGRESS_PER_SECOND", 100)
MCPHUB_TURN_SECONDS = env.seconds("MCPHUB_TURN_SECONDS", 1.0)
MCPHUB_PAYLOAD_BYTES = env.whole("MCPHUB_PAYLOAD_BYTES", 64 * 1024)
# Arguments and result of a call that are longer than this together are stored compressed; 0 leaves all as they are.
MCPHUB_COMPRESS_BYTES = env.whole("MCPHUB_COMPRESS_BYTES", 4096, least=0)
# How many days calls are kept where a tenant says nothing else; 0 is for ever.
MCPHUB_KEEP_DAYS = env.whole("MCPHUB_KEEP_DAYS", 0, least=0)
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
# Requests of one person to the REST API; 0 is no limit. Each web process counts for itself.
MCPHUB_API_PER_MINUTE = env.whole("MCPHUB_API_PER_MINUTE", 600, least=0)
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
# For those who open the login page by its own address.
LOGIN_REDIRECT_URL = "admin:index"
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
    "STYLES": ["tools_app.admin.look.style"],
    "SCRIPTS": ["tools_app.admin.look.zone_script"],
    "SIDEBAR": {"navigation": "tools_app.admin.navigation.sidebar"},
}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "tools_app.api.v1.openapi.Described",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "mcphub REST API",
    "DESCRIPTION": "What [the admin's pages](/admin/) do, for scripts. See `docs/api.md`.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "ENUM_NAME_OVERRIDES": {
        "CallStatusEnum": "tools_app.models.CallStatus",
        "KeyStatusEnum": "tools_app.api.v1.keys.STATES",
        "InvitationStatusEnum": "tools_app.api.v1.invitations.STATES",
        "ExportStateEnum": "tools_app.models.ExportState",
    },
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    # From this host: browsers need no other.
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "docExpansion": "none", "filter": True, "validatorUrl": None},
    "PREPROCESSING_HOOKS": ["tools_app.api.v1.openapi.ours"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "tools_app.api.v1.openapi.complete",
    ],
}

# --- Behind HTTPS ---------------------------------------------------------------------------------------------

if env.flag("MCPHUB_HTTPS"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
CSRF_TRUSTED_ORIGINS = [origin for origin in MCPHUB_ALLOWED_ORIGINS if "://" in origin]
SESSION_COOKIE_HTTPONLY = True

# --- E-mail ---------------------------------------------------------------------------------------------------

# Invitations are sent through this server; without one, whoever invites hands on the link.
MCPHUB_EMAIL_URL = env.text("MCPHUB_EMAIL_URL")
globals().update(env.email("MCPHUB_EMAIL_URL"))
DEFAULT_FROM_EMAIL = MCPHUB_EMAIL_FROM = env.text("MCPHUB_EMAIL_FROM", "mcphub@localhost")
# A person waits for it.
EMAIL_TIMEOUT = 10

# --- What the hub tells of itself -----------------------------------------------------------------------------

# Who carries it may read /metrics; without one, only superusers may.
MCPHUB_METRICS_TOKEN = env.text("MCPHUB_METRICS_TOKEN")
MCPHUB_METRICS_BY_TENANT = env.flag("MCPHUB_METRICS_BY_TENANT")

LOG_LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "tools_app.telemetry.logs.formatter",
            "style": env.choice("MCPHUB_LOG_FORMAT", ["TEXT", "JSON"], "TEXT"),
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.choice("MCPHUB_LOG_LEVEL", LOG_LEVELS, "WARNING")},
    "loggers": {
        # Their own handlers would write past the formatter, which keeps secrets out.
        **{name: {"handlers": [], "propagate": True} for name in ("uvicorn", "uvicorn.access", "uvicorn.error")},
        # They log headers and whole messages.
        **{name: {"level": "INFO"} for name in ("httpcore", "websockets")},
    },
}
hide(
    SECRET_KEY,
    *SECRET_KEY_FALLBACKS,
    MCPHUB_AUDIT_KEY,
    *(MCPHUB_ADMIN_PASSWORD, MCPHUB_DEMO_API_KEY, MCPHUB_KEY, MCPHUB_METRICS_TOKEN),
)
hide_password_of(env.text("DATABASE_URL"), REDIS_URL, CELERY_BROKER_URL, MCPHUB_EMAIL_URL)
