"""The admin has no groups and no permissions: an operator may do everything that it offers."""

from django.contrib import admin
from django.contrib.auth.models import Group

admin.site.unregister(Group)
