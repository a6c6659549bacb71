"""The paths of people's sign-in: second factors, by django-allauth, and the sign-in with a company's account."""

from allauth.account import views as account
from django.urls import include, path
from django.views.decorators.http import require_POST
from django.views.generic import RedirectView

from tools_app.identity.sign_in import company

urlpatterns = [
    path("sign-in/", company.choose_company, name="sign-in"),
    path("sign-in/callback/<uuid:issuer>/", company.callback, name="sign-in-callback"),
    path("sign-in/saml/<uuid:issuer>/", company.saml_acs, name="sign-in-saml"),
    path("sign-in/saml/<uuid:issuer>/metadata/", company.saml_metadata, name="sign-in-saml-metadata"),
    path("sign-in/<slug:slug>/", company.tenant_sign_in, name="sign-in-tenant"),
    path("sign-in/<slug:slug>/<uuid:issuer>/", company.begin, name="sign-in-begin"),
    # The names are allauth's.
    path("account/login/", RedirectView.as_view(pattern_name="admin:login", query_string=True), name="account_login"),
    path("account/logout/", require_POST(account.logout), name="account_logout"),
    path("account/inactive/", account.account_inactive, name="account_inactive"),
    path("account/reauthenticate/", account.reauthenticate, name="account_reauthenticate"),
    path("account/factors/", include("allauth.mfa.urls")),
]
